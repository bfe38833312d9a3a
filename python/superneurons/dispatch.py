"""Sees one training step of PyTorch op by op: which storages each op reads, writes and makes.

Identity of storages is the storage object, never its address: a weak reference tells when it dies.
Views are dissolved into byte ranges of their storage; a write through a view is a write of the
storage. Multi-tensor (foreach) ops are split into one op per tensor sharing a launch group.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_DTYPES = {
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float64: "f64",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.bool: "u8",
}
# Ops that make a storage and leave it as it is: the first write comes later.
_EMPTY = {"aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty"}


@dataclass(eq=False, slots=True)
class Storage:
    """What is known of one storage object."""

    index: int
    bytes: int
    dtype: str
    shape: list[int]
    born: int  # index of the op that made it; -1: before the step
    previous: int = -1  # index of this object in the training step before, -1 if it was not there
    freed_before: int | None = None
    layer: str = ""
    role: str | None = None
    names: list[tuple[str, str]] = field(default_factory=list)  # role and name at the start


@dataclass(frozen=True, slots=True)
class State:
    """A tensor that outlives the training step and has a name."""

    role: str
    name: str
    layer: str
    tensor: torch.Tensor


Range = tuple[Storage, int, int]  # offset and length in bytes


@dataclass(slots=True)
class SeenOp:
    """One op that allocated or wrote memory of the device."""

    kind: str
    phase: str
    layer: str
    tag: int
    workspace: int
    random: bool
    reads: list[Range]
    writes: list[Range]
    once: list[Storage] = field(default_factory=list)
    group: int = -1
    share: int = 1  # ops among which the time of the launch is divided


class Tags(Protocol):
    """Marks device work by the op that issues it."""

    def push(self, tag: int) -> None: ...
    def pop(self) -> None: ...


def storage_key(tensor: torch.Tensor) -> int:
    """Names a storage object for as long as it lives."""
    return tensor.untyped_storage()._cdata


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """Byte range of its storage that a tensor spans: (offset, length)."""
    itemsize = tensor.element_size()
    if tensor.numel() == 0:
        return tensor.storage_offset() * itemsize, 0
    span = 1 + sum((size - 1) * abs(stride) for size, stride in zip(tensor.shape, tensor.stride()))
    return tensor.storage_offset() * itemsize, span * itemsize


class Layers:
    """Module path of what runs now: a stack in forward; in backward the module of the forward op,
    by sequence number."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.stack: list[str] = []
        self.by_sequence: dict[int, str] = {}
        self.handles = []
        for name, module in model.named_modules():
            self.handles.append(module.register_forward_pre_hook(self._enter(name)))
            self.handles.append(module.register_forward_hook(self._leave, always_call=True))

    def _enter(self, name: str) -> Any:
        def hook(module: Any, inputs: Any) -> None:
            self.stack.append(name)

        return hook

    def _leave(self, module: Any, inputs: Any, output: Any) -> None:
        self.stack.pop()

    def close(self) -> None:
        for handle in self.handles:
            handle.remove()

    def of(self, phase: str) -> str:
        if phase == "forward":
            layer = self.stack[-1] if self.stack else ""
            self.by_sequence[torch._C._autograd._get_sequence_nr()] = layer
            return layer
        if phase == "backward":
            node = torch._C._current_autograd_node()
            return self.by_sequence.get(node._sequence_nr(), "") if node is not None else ""
        return ""


class Mode(TorchDispatchMode):
    """Records every op of one training step that allocates or writes device memory. `before` is the
    mode of the training step before: it tells which storages are still the same objects."""

    def __init__(
        self, layers: Layers, tags: Tags, step: int, device: str, before: Mode | None = None
    ) -> None:
        super().__init__()
        self.layers, self.tags, self.step, self.device = layers, tags, step, device
        self.before = before
        if before:
            before.before = None  # one step back is enough
        self.expected: dict[int, list[State]] = {}  # state that no op has accessed yet
        self.end: dict[tuple[str, str], Storage] = {}  # where state is at the end, by role and name
        self.ops: list[SeenOp] = []
        self.storages: list[Storage] = []
        self.by_key: dict[int, Storage] = {}
        self.in_update = False
        self.calls = 0
        self.groups = 0

    def storage(self, tensor: torch.Tensor, born: int) -> Storage:
        storage = tensor.untyped_storage()
        key = storage._cdata
        known = self.by_key.get(key)
        if known is None:
            before = self.before.by_key.get(key) if self.before and born < 0 else None
            known = Storage(
                index=len(self.storages),
                bytes=storage.nbytes(),
                dtype=_DTYPES.get(tensor.dtype, "u8"),
                shape=list(tensor.shape),
                born=born,
                previous=before.index if before else -1,
            )
            for state in self.expected.pop(key, []) if born < 0 else []:
                known.role, known.layer = state.role, state.layer
                known.names.append((state.role, state.name))
            self.storages.append(known)
            self.by_key[key] = known
            weakref.finalize(storage, self.died, key)
        known.bytes = max(known.bytes, storage.nbytes())
        return known

    def died(self, key: int) -> None:
        known = self.by_key.pop(key, None)
        if known is not None:
            known.freed_before = len(self.ops)

    def expect(self, states: Iterable[State]) -> None:
        """Before the step: state that it may access. Storages keep no tensor alive."""
        for state in states:
            key = storage_key(state.tensor)
            if key not in self.expected:
                weakref.finalize(state.tensor.untyped_storage(), self.expected.pop, key, None)
            state = dataclasses.replace(state, tensor=torch.empty(0))
            self.expected.setdefault(key, []).append(state)

    def finish(self, states: Iterable[State]) -> None:
        """After the step: where state is now. Of two names the later gives the role."""
        for state in states:
            known = self.by_key.get(storage_key(state.tensor))
            if known is not None:
                known.role, known.layer = state.role, state.layer
                self.end[state.role, state.name] = known

    def access(self, tensor: torch.Tensor, born: int) -> Range:
        storage = self.storage(tensor, born)
        offset, length = _extent(tensor)
        return (storage, offset, length)

    def accesses(self, value: Any, born: int) -> list[Range]:
        leaves = tree_leaves(value)
        return [
            self.access(leaf, born)
            for leaf in leaves
            if isinstance(leaf, torch.Tensor) and leaf.device.type == self.device
        ]

    def phase(self) -> str:
        if torch._C._current_graph_task_id() != -1:
            return "backward"
        return "update" if self.in_update else "forward"

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        phase = self.phase()
        layer = self.layers.of(phase)
        reads = self.accesses((args, kwargs), -1)
        cuda = self.device == "cuda"
        if cuda:
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
        tag, self.calls = self.calls, self.calls + 1
        self.tags.push((self.step + 1) << 32 | tag)
        try:
            result = func(*args, **kwargs)
        finally:
            self.tags.pop()
        index = len(self.ops)
        known = {id(s) for s, _, _ in reads}
        outputs = self.accesses(result, index)
        fresh = [a for a in outputs if id(a[0]) not in known and a[0].born == index]
        writes, once = self.written(func, args, kwargs)
        workspace = 0
        if cuda:
            grown = torch.cuda.memory_allocated() - before
            workspace = max(0, torch.cuda.max_memory_allocated() - before - max(grown, 0))
        if func._schema.name in _EMPTY or not (fresh or writes):
            return result  # nothing is written: a view, a read of the host
        op = SeenOp(
            kind=str(func._schema.name),
            phase=phase,
            layer=layer,
            tag=tag,
            workspace=workspace,
            random=torch.Tag.nondeterministic_seeded in func.tags,
            reads=reads,
            writes=fresh + writes,
            once=once,
        )
        self.add(op, args, kwargs, fresh, writes)
        return result

    def written(self, func: Any, args: Any, kwargs: Any) -> tuple[list[Range], list[Storage]]:
        """Accesses of the arguments that the schema, or what is known of batch norm, says are
        written; and which of them only the first run writes."""
        accesses: list[Range] = []
        once: list[Storage] = []
        schema = func._schema
        by_name = dict(kwargs)
        for argument, value in zip(schema.arguments, args):
            by_name[argument.name] = value
        training = by_name.get("training", by_name.get("train", True))
        for argument in schema.arguments:
            value = by_name.get(argument.name)
            if value is None:
                continue
            statistics = argument.name in ("running_mean", "running_var")
            if argument.alias_info is not None and argument.alias_info.is_write:
                accesses += self.accesses(value, -1)
            elif statistics and training and "backward" not in schema.name:
                extra = self.accesses(value, -1)
                accesses += extra
                once += [a[0] for a in extra]
        return accesses, once

    def add(
        self, op: SeenOp, args: Any, kwargs: Any, fresh: list[Range], writes: list[Range]
    ) -> None:
        many = "_foreach" in op.kind or "_fused" in op.kind
        parts = self.split(args, kwargs, fresh, writes) if many else None
        if not parts:
            self.ops.append(op)
            return
        for index, (part_reads, part_writes) in enumerate(parts):
            self.ops.append(
                SeenOp(
                    kind=op.kind,
                    phase=op.phase,
                    layer=op.layer,
                    tag=op.tag,
                    workspace=op.workspace if index == 0 else 0,
                    random=op.random,
                    reads=part_reads,
                    writes=part_writes,
                    once=op.once,
                    group=self.groups,
                    share=len(parts),
                )
            )
        for storage, _, _ in fresh:
            storage.born = len(self.ops) - 1
        self.groups += 1

    def split(
        self, args: Any, kwargs: Any, fresh: list[Range], writes: list[Range]
    ) -> list[tuple[list[Range], list[Range]]] | None:
        """A multi-tensor op as one per tensor: the i-th of every list, with all that is no list."""
        lists, shared = [], []
        for value in list(args) + list(kwargs.values()):
            if isinstance(value, (list, tuple)) and value and isinstance(value[0], torch.Tensor):
                lists.append(value)
            elif isinstance(value, torch.Tensor) and value.device.type == self.device:
                shared.append(value)
        lengths = {len(each) for each in lists}
        if len(lengths) != 1:
            return None
        written = {id(storage) for storage, _, _ in writes}
        parts = []
        for i in range(lengths.pop()):
            mine = [each[i] for each in lists if each[i].device.type == self.device]
            part = [self.access(tensor, -1) for tensor in mine]
            part_writes = [a for a in part if id(a[0]) in written]
            if fresh:
                part_writes = part_writes + [fresh[i]]
            parts.append((part + [self.access(t, -1) for t in shared], part_writes))
        return parts
