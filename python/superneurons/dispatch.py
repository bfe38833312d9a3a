"""Sees the training steps of a PyTorch program op by op: which storages each op reads, writes and
makes, written to a raw capture (superneurons.raw) as it happens.

Identity of storages is the storage object, never its address: a weak reference tells when it dies.
Views are dissolved into byte ranges of their storage; a write through a view is a write of the
storage. Whatever goes wrong in here ends the capture and not the program.
"""

from __future__ import annotations

import operator
import time
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from superneurons.layers import Layers
from superneurons.raw import RawWriter
from superneurons.schemas import Kind, argument, flat, learn
from superneurons.states import State

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
STRIPPED_CALL = 0xFFFFFFFF  # of device work that is not of the program (--offload-capture)


class Tags(Protocol):
    """Marks device work, and memory that is allocated, by the op that issues it."""

    def push(self, step: int, call: int) -> None: ...
    def pop(self) -> None: ...


@dataclass(eq=False, slots=True)
class _Known:
    """A storage object. With --offload-capture several objects stand for one storage in turn."""

    serial: int
    bytes: int
    holders: int = 1


class _Seen(weakref.ref):  # type: ignore[type-arg]
    """An object that holds (part of) a storage, and where its bytes begin there. It is the reference
    itself, for there are many: each more would be one to look at for Python's garbage collector."""

    __slots__ = ("key", "known", "shift")
    key: int
    known: _Known
    shift: int


Access = tuple[int, int, int]  # serial, offset and length in bytes


def _extent(tensor: Any) -> tuple[int, int, bool]:
    """Offset and length of the bytes of its storage that a tensor with gaps, or of other strides,
    spans, and whether it has all of them."""
    itemsize = tensor.element_size()
    offset, count = tensor.storage_offset() * itemsize, tensor.numel()
    if count == 0:
        return offset, 0, True
    span = 1 + sum((n - 1) * abs(s) for n, s in zip(tensor.shape, tensor.stride()))
    return offset, span * itemsize, span <= count


def plain(value: Any) -> bool:
    """Whether a class is a tensor that has no dispatch of its own."""
    return value.__torch_dispatch__ is torch._C._disabled_torch_dispatch_impl


@dataclass(slots=True)
class _Call:
    """What is gathered of one call."""

    reads: list[Access] = field(default_factory=list)
    lists: list[list[Access]] = field(default_factory=list)
    makes: list[int] = field(default_factory=list)


class Recorder(TorchDispatchMode):
    """Writes every op that accesses memory of the device, while `active`."""

    def __init__(self, raw: RawWriter, layers: Layers, tags: Tags, device: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.raw, self.layers, self.tags, self.device = raw, layers, tags, device
        self.active = False
        self.paused = False  # while our own copies run
        self.on_failure: Callable[[BaseException], None] = lambda error: None
        self.step, self.calls = 0, 0
        self._serials = 0
        self._seen: dict[int, _Seen] = {}  # by storage object
        self._kinds: dict[int, Kind] = {}
        self._plain: set[Any] = set()  # classes
        self._on_device = operator.attrgetter(f"is_{device}")
        self._on_death = self._dead
        self._views, self._views_ns = 0, 0
        self._running = 0  # calls, by the threads of the program
        self._died: list[_Known] = []  # while calls ran

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    # Storages.

    def known(self, tensor: torch.Tensor) -> tuple[_Seen, bool]:
        """The storage of a tensor, and whether it was not known before."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        seen = self._seen.get(key)
        if seen is not None:
            if storage.nbytes() > seen.known.bytes and seen.shift == 0:
                seen.known.bytes = storage.nbytes()
                self._announce(seen.known, tensor)
            return seen, False
        known = _Known(self._serials, storage.nbytes())
        self._serials += 1
        self._announce(known, tensor)
        return self.watch(storage, known, 0), True

    def _announce(self, known: _Known, tensor: torch.Tensor) -> None:
        dtype = _DTYPES.get(tensor.dtype, "u8")
        self.raw.hold(
            f'{{"r":"storage","s":{known.serial},"bytes":{known.bytes},"dtype":"{dtype}",'
            f'"shape":{list(tensor.shape)}}}'
        )

    def watch(self, storage: Any, known: _Known, shift: int) -> _Seen:
        """A storage object stands for `known` (from `shift` on) until it dies."""
        seen = _Seen(storage, self._on_death)
        seen.key, seen.known, seen.shift = storage._cdata, known, shift
        self._seen[seen.key] = seen
        return seen

    def _dead(self, seen: _Seen) -> None:
        self._seen.pop(seen.key, None)
        self.release(seen.known)

    def release(self, known: _Known) -> None:
        known.holders -= 1
        if known.holders == 0:
            if self._running:
                self._died.append(known)  # the call may have it, and is not written yet
            else:
                self.raw.hold(f'{{"r":"free","s":{known.serial}}}')

    def _ended(self) -> None:
        """A call is written: now what died in it."""
        self._running -= 1
        while self._died and not self._running:
            self.raw.hold(f'{{"r":"free","s":{self._died.pop(0).serial}}}')

    def forget(self) -> None:
        """No death is of interest any more."""
        self._seen.clear()

    def access(self, tensor: Any) -> tuple[Access, bool] | None:
        """The bytes, and whether all of them are the tensor's; nothing if it is not `ours`. Every
        op comes here for every tensor, so what is known already goes the short way."""
        if not self._on_device(tensor) or tensor.layout is not torch.strided:
            return None
        storage = tensor.untyped_storage()
        seen = self._seen.get(storage._cdata)
        if seen is None or storage.nbytes() != seen.known.bytes:
            if not self.ours(tensor):
                return None
            seen, _ = self.known(tensor)
        if tensor.is_contiguous():
            offset = seen.shift + tensor.storage_offset() * tensor.element_size()
            return (seen.known.serial, offset, tensor.nbytes), True
        offset, length, dense = _extent(tensor)
        return (seen.known.serial, offset + seen.shift, length), dense

    def ours(self, tensor: torch.Tensor) -> bool:
        return (
            self._on_device(tensor)
            and tensor.layout is torch.strided
            and not torch._is_functional_tensor(tensor)
        )

    def states(self, states: Iterable[State]) -> None:
        for state in states:
            if plain(type(state.tensor)) and self.ours(state.tensor):
                seen, _ = self.known(state.tensor)
                self.raw.line(
                    {"r": "state", "s": seen.known.serial, "role": state.role, "name": state.name,
                     "m": state.module}
                )  # fmt: skip

    # Ops.

    def start_step(self, step: int) -> None:
        self.step, self.calls = step, 0
        self._views, self._views_ns = 0, 0
        self._running = 1  # even if threads miscounted, no death waits for longer than a step
        self._ended()
        self.active = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not self.active or self.paused:
            return func(*args, **kwargs)
        if types and not self._plain.issuperset(types):
            if not all(map(plain, types)):
                return NotImplemented  # a wrapper: its dispatch comes back with what is inside
            self._plain.update(types)
        try:
            kind = self._kinds.get(id(func))
            if kind is None:
                kind = self._kinds.setdefault(id(func), learn(func))
            place = self.layers.place()
            call = None if kind.view else self._gather(kind, args, kwargs)
        except Exception as error:  # noqa: BLE001
            self.on_failure(error)
            return func(*args, **kwargs)
        if call is None:
            begin = time.perf_counter_ns()
            result = func(*args, **kwargs)
            self._views += 1
            self._views_ns += time.perf_counter_ns() - begin
            return result
        number, self.calls = self.calls, self.calls + 1
        self._running += 1
        try:
            self.tags.push(self.step, number)
            begin = time.perf_counter_ns()
            try:
                result = func(*args, **kwargs)
            finally:
                took = time.perf_counter_ns() - begin
                self.tags.pop()
            try:
                self._write(kind, place, number, call, args, kwargs, result, took)
            except Exception as error:  # noqa: BLE001
                self.on_failure(error)
        finally:
            self._ended()
        return result

    def _gather(self, kind: Kind, args: Any, kwargs: Any) -> _Call:
        call = _Call()
        out = {id(argument(args, kwargs, p, n)) for p, n, only in kind.written
               if only or kind.overwrites} if kind.written else ()  # fmt: skip
        for value in (*args, *kwargs.values()) if kwargs else args:
            if isinstance(value, torch.Tensor):
                found = self.access(value)
                if found is not None and (not found[1] or id(value) not in out):
                    call.reads.append(found[0])
            elif isinstance(value, (list, tuple)) and value:
                if not isinstance(value[0], (int, float)):  # sizes, strides
                    self._gather_list(call, kind, value, id(value) in out)
        return call

    def _gather_list(self, call: _Call, kind: Kind, value: Any, out: bool) -> None:
        part = []
        value = flat(value)
        for each in value:
            found = self.access(each) if isinstance(each, torch.Tensor) else None
            if found is not None:
                part.append(found[0])
                if not out or not found[1]:
                    call.reads.append(found[0])
        if kind.many and len(part) == len(value):
            call.lists.append(part)

    def _write(
        self, kind: Kind, place: tuple[str, int], number: int, call: _Call, args: Any,
        kwargs: Any, result: Any, took: int
    ) -> None:  # fmt: skip
        fresh: list[Access] = []
        writes: list[Access] = []
        once: list[int] = []
        sync = False
        if kind.writes:
            writes, once, sync = self._written(kind, args, kwargs, fresh)
        for value in result if isinstance(result, (list, tuple)) else (result,):
            for each in value if isinstance(value, (list, tuple)) else (value,):
                if not isinstance(each, torch.Tensor):
                    sync = sync or isinstance(each, (bool, int, float))
                elif self.ours(each):
                    seen, new = self.known(each)
                    if new:
                        fresh.append((seen.known.serial, 0, seen.known.bytes))
                else:
                    sync = sync or each.device.type == "cpu" != self.device
        if kind.empty:
            for serial, _, _ in fresh:
                self.raw.text(f'{{"r":"make","s":{serial}}}')
            return
        if not (fresh or writes or call.reads):
            return
        parts = [
            f'{{"r":"call","c":{number},"kind":"{kind.name}","phase":"{place[0]}","m":{place[1]},'
            f'"in":{_text(call.reads)},"out":{_text(writes + fresh)},"host":{took}'
        ]
        if fresh:
            parts.append(f'"makes":{[serial for serial, _, _ in fresh]}')
        if call.lists:
            parts.append(f'"lists":[{",".join(map(_text, call.lists))}]')
        if once:
            parts.append(f'"once":{once}')
        if kind.random:
            parts.append('"random":true')
        if sync and call.reads and not (fresh or writes):
            parts.append('"sync":true')
        if self.layers.micro_batch:
            parts.append(f'"mb":{self.layers.micro_batch}')
        if self._views:
            parts.append(f'"before":[{self._views_ns},{self._views}]')
            self._views, self._views_ns = 0, 0
        self.raw.text(",".join(parts) + "}")

    def _written(
        self, kind: Kind, args: Any, kwargs: Any, fresh: list[Access]
    ) -> tuple[list[Access], list[int], bool]:
        """Accesses of the arguments that the schema, or what is known of batch norm, says are
        written; which of them only the first run writes; whether the host waits for it. An argument
        may have been given a storage that is `fresh`."""
        writes: list[Access] = []
        once: list[int] = []
        sync = False
        for position, name, _ in kind.written:
            value = argument(args, kwargs, position, name)
            for each in flat(value) if isinstance(value, (list, tuple)) else (value,):
                if isinstance(each, torch.Tensor):
                    if self.ours(each):
                        seen, new = self.known(each)
                        found = self.access(each)
                        if new:
                            fresh.append((seen.known.serial, 0, seen.known.bytes))
                        elif found is not None:
                            writes.append(found[0])
                    else:
                        sync = sync or kind.name == "aten::copy_"
        if kind.statistics and (
            kind.training is None or argument(args, kwargs, *kind.training) is not False
        ):
            for position, name in kind.statistics:
                value = argument(args, kwargs, position, name)
                found = self.access(value) if isinstance(value, torch.Tensor) else None
                if found is not None:
                    writes.append(found[0])
                    once.append(found[0][0])
        return writes, once, sync


def _text(accesses: list[Access]) -> str:
    return "[" + ",".join([f"[{s},{o},{n}]" for s, o, n in accesses]) + "]"
