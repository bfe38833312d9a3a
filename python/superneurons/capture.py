"""Thin capture of one PyTorch training step as a trace (traces/FORMAT.md).

    from superneurons.capture import capture
    capture(training_step, model, optimizer, "resnet50.jsonl.gz", library="build/libsuperneurons_cupti.so")

`training_step()` runs one whole training step: zero_grad, forward, backward, optimizer.step. Identity of storages
is the storage object, never its address: a weak reference tells when it dies. Views are dissolved into byte ranges
of their storage; a write through a view is a write of the storage. Multi-tensor (foreach) ops are split into one op
per tensor sharing a launch group. Order, accesses and frees come from one traced step, durations from CUPTI over several,
the training step's time from untouched steps.
"""

from __future__ import annotations

import ctypes
import gzip
import json
import os
import statistics
import tempfile
import time
import weakref
from collections import defaultdict

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_DTYPES = {
    torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.float64: "f64",
    torch.int64: "i64", torch.int32: "i32", torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8",
    torch.bool: "u8",
}


class _Storage:
    """What is known of one storage object."""

    def __init__(self, index, tensor, born):
        self.index = index
        self.bytes = tensor.untyped_storage().nbytes()
        self.dtype = _DTYPES.get(tensor.dtype, "u8")
        self.shape = list(tensor.shape)
        self.born = born  # index of the op that made it; -1: before the step
        self.freed_before = None
        self.layer = ""
        self.role = None
        self.written = False


class _Library:
    """The CUPTI collector, or nothing where it is not given (then durations are not measured)."""

    def __init__(self, path):
        self._lib = ctypes.CDLL(path) if path else None

    def start(self):
        if self._lib is None:
            return
        error = ctypes.create_string_buffer(512)
        if self._lib.superneurons_trace_start(error, ctypes.c_size_t(512)) != 0:
            raise RuntimeError("not traced: " + error.value.decode())

    def push(self, tag):
        if self._lib is not None:
            self._lib.superneurons_tag_push(ctypes.c_uint64(tag))

    def pop(self):
        if self._lib is not None:
            self._lib.superneurons_tag_pop()

    def stop(self):
        """List of device activities with their tag."""
        if self._lib is None:
            return [], 0
        handle, path = tempfile.mkstemp(suffix=".jsonl")
        os.close(handle)
        try:
            if self._lib.superneurons_trace_stop(path.encode()) != 0:
                raise RuntimeError("the activity log could not be written")
            with open(path, encoding="utf-8") as file:
                rows = [json.loads(line) for line in file]
        finally:
            os.unlink(path)
        return rows[:-1], rows[-1]["dropped"]


def _extent(tensor):
    """Byte range of its storage that a tensor spans: (offset, length)."""
    itemsize = tensor.element_size()
    if tensor.numel() == 0:
        return tensor.storage_offset() * itemsize, 0
    span = 1 + sum((size - 1) * abs(stride) for size, stride in zip(tensor.shape, tensor.stride()))
    return tensor.storage_offset() * itemsize, span * itemsize


def _tensors(value, device):
    return [t for t in tree_leaves(value) if isinstance(t, torch.Tensor) and t.device.type == device]


class _Layers:
    """Module path of what runs now: a stack in forward, the forward op's module by sequence number in backward."""

    def __init__(self, model):
        self.stack = []
        self.by_sequence = {}
        self.handles = []
        for name, module in model.named_modules():
            self.handles.append(module.register_forward_pre_hook(self._enter(name)))
            self.handles.append(module.register_forward_hook(self._leave, always_call=True))

    def _enter(self, name):
        def hook(module, inputs):
            self.stack.append(name)
        return hook

    def _leave(self, module, inputs, output):
        self.stack.pop()

    def close(self):
        for handle in self.handles:
            handle.remove()

    def forward(self):
        layer = self.stack[-1] if self.stack else ""
        self.by_sequence[torch._C._autograd._get_sequence_nr()] = layer
        return layer

    def backward(self):
        node = torch._C._current_autograd_node()
        return self.by_sequence.get(node._sequence_nr(), "") if node is not None else ""


class _Mode(TorchDispatchMode):
    """Records every op of one training step that allocates or writes device memory."""

    def __init__(self, layers, library, step, device):
        super().__init__()
        self.layers, self.library, self.step, self.device = layers, library, step, device
        self.ops, self.storages, self.by_key = [], [], {}
        self.in_update = False
        self.tags = 0
        self.groups = 0

    def storage(self, tensor, born):
        storage = tensor.untyped_storage()
        key = storage._cdata
        known = self.by_key.get(key)
        if known is None:
            known = _Storage(len(self.storages), tensor, born)
            self.storages.append(known)
            self.by_key[key] = known
            weakref.finalize(storage, self.died, key)
        known.bytes = max(known.bytes, storage.nbytes())
        return known

    def died(self, key):
        known = self.by_key.pop(key, None)
        if known is not None:
            known.freed_before = len(self.ops)

    def access(self, tensor, born):
        storage = self.storage(tensor, born)
        offset, length = _extent(tensor)
        return (storage, offset, length)

    def phase(self):
        if torch._C._current_graph_task_id() != -1:
            return "backward"
        return "update" if self.in_update else "forward"

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        phase = self.phase()
        layer = self.layers.backward() if phase == "backward" else self.layers.forward() if phase == "forward" else ""
        inputs = _tensors((args, kwargs), self.device)
        reads = [self.access(t, -1) for t in inputs]
        cuda = self.device == "cuda"
        if cuda:
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
        self.library.push((self.step + 1) << 32 | self.tags)
        try:
            result = func(*args, **kwargs)
        finally:
            self.library.pop()
        tag, self.tags = self.tags, self.tags + 1
        index = len(self.ops)
        known = {id(s) for s, _, _ in reads}
        outputs = [self.access(t, index) for t in _tensors(result, self.device)]
        fresh = [a for a in outputs if id(a[0]) not in known and a[0].born == index]
        written = self.written(func, args, kwargs)
        workspace = 0
        if cuda:
            grown = torch.cuda.memory_allocated() - before
            workspace = max(0, torch.cuda.max_memory_allocated() - before - max(grown, 0))
        if func._schema.name in ("aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty"):
            return result
        self.add(func, phase, layer, args, kwargs, reads, fresh, written, workspace, tag)
        return result

    def written(self, func, args, kwargs):
        """Accesses of the arguments that the schema, or what is known of batch norm, says are written."""
        accesses, once = [], []
        schema = func._schema
        by_name = dict(kwargs)
        for argument, value in zip(schema.arguments, args):
            by_name[argument.name] = value
        training = by_name.get("training", by_name.get("train", True))
        for argument in schema.arguments:
            value = by_name.get(argument.name)
            if value is None:
                continue
            if argument.alias_info is not None and argument.alias_info.is_write:
                accesses += [self.access(t, -1) for t in _tensors(value, self.device)]
            elif argument.name in ("running_mean", "running_var") and training and "backward" not in schema.name:
                extra = [self.access(t, -1) for t in _tensors(value, self.device)]
                accesses += extra
                once += [a[0] for a in extra]
        return accesses, once

    def add(self, func, phase, layer, args, kwargs, reads, fresh, written, workspace, tag):
        writes, once = written
        if not fresh and not writes:
            return  # a view, or a read of the host
        base = {
            "kind": str(func._schema.name), "phase": phase, "layer": layer, "tag": tag, "workspace": workspace,
            "random": torch.Tag.nondeterministic_seeded in func.tags, "once": once, "group": -1, "share": 1,
        }
        parts = self.split(args, kwargs, fresh, writes) if "_foreach" in base["kind"] or "_fused" in base["kind"] else None
        if not parts:
            self.ops.append({**base, "reads": reads, "writes": fresh + writes})
            return
        for index, (part_reads, part_writes) in enumerate(parts):
            self.ops.append({**base, "reads": part_reads, "writes": part_writes, "group": self.groups,
                             "share": len(parts), "workspace": workspace if index == 0 else 0})
        for storage, _, _ in fresh:
            storage.born = len(self.ops) - 1
        self.groups += 1

    def split(self, args, kwargs, fresh, writes):
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
            part = [self.access(each[i], -1) for each in lists if each[i].device.type == self.device]
            part_writes = [a for a in part if id(a[0]) in written]
            if fresh:
                part_writes = part_writes + [fresh[i]]
            parts.append((part + [self.access(t, -1) for t in shared], part_writes))
        return parts


def _roles(model, optimizer, storages_by_key):
    def mark(tensor, role, layer=""):
        known = storages_by_key.get(tensor.untyped_storage()._cdata)
        if known is not None:
            known.role, known.layer = role, layer
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            mark(parameter.grad, "gradient", name.rpartition(".")[0])
        mark(parameter, "parameter", name.rpartition(".")[0])
    for name, buffer in model.named_buffers():
        mark(buffer, "buffer", name.rpartition(".")[0])
    for state in optimizer.state.values():
        for value in state.values():
            if isinstance(value, torch.Tensor):
                mark(value, "optimizer_state")


def _merged(accesses):
    """Each storage once per op: the hull of its ranges."""
    hull = {}
    for storage, offset, length in accesses:
        if length == 0:
            continue
        begin, end = hull.get(storage.index, (offset, offset + length))
        hull[storage.index] = (min(begin, offset), max(end, offset + length))
    return hull


def _fill_roles(mode):
    forward = {}
    for index, op in enumerate(mode.ops):
        for storage, _, _ in op["writes"]:
            if storage.role is None and storage.born >= 0:
                forward.setdefault(storage.index, op["phase"])
                storage.layer = storage.layer or op["layer"]
    backward_reads = {s.index for op in mode.ops if op["phase"] == "backward" for s, _, _ in op["reads"]}
    for storage in mode.storages:
        if storage.role is not None:
            continue
        if storage.born < 0:
            storage.role = "input"
        elif forward.get(storage.index) == "backward":
            storage.role = "activation_gradient"
        elif storage.index in backward_reads:
            storage.role = "activation"
        else:
            storage.role = "temporary"


def _durations(rows, mode, steps):
    """Per op: median over the steps of first kernel's start to last kernel's end, and the last step's kernels."""
    spans = defaultdict(lambda: defaultdict(list))
    orphans = 0
    for row in rows:
        if row["tag"] < 0:
            orphans += row["end"] - row["start"]
            continue
        spans[row["tag"] & 0xFFFFFFFF][row["tag"] >> 32].append(row)
    times, kernels = {}, {}
    for tag, by_step in spans.items():
        times[tag] = int(statistics.median_low(
            [max(r["end"] for r in part) - min(r["start"] for r in part) for part in by_step.values()]))
        last = by_step[max(by_step)]
        kernels[tag] = [[r["name"], r["end"] - r["start"]] for r in last]
    owned = sum(r["end"] - r["start"] for r in rows if r["tag"] >= 0)
    return times, kernels, owned, orphans


def _rebuilt_peak(mode):
    """Most bytes of storages alive at one time (rounded to 512 as the caching allocator does), with workspaces."""
    delta = defaultdict(int)
    for storage in mode.storages:
        size = (storage.bytes + 511) // 512 * 512
        delta[max(storage.born, 0)] += size
        if storage.freed_before is not None:
            delta[storage.freed_before] -= size
    live = peak = 0
    for index, op in enumerate(mode.ops):
        live += delta[index]
        peak = max(peak, live + op["workspace"])
    return peak


def capture(training_step, model, optimizer, path, library=None, warmup=3, traced=3, untraced=10, name="pytorch",
            batch=0, device="cuda"):
    """Records training_step() into a trace file and returns a summary (peaks, times, share of kernel time)."""
    sync = torch.cuda.synchronize if device == "cuda" else (lambda: None)
    cupti = _Library(library if device == "cuda" else None)
    for _ in range(warmup):
        training_step()
    sync()
    peak_before = 0
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(untraced):
        begin = time.perf_counter_ns()
        training_step()
        sync()
        times.append(time.perf_counter_ns() - begin)
    if device == "cuda":
        peak_before = torch.cuda.max_memory_allocated()

    layers = _Layers(model)
    state = {"mode": None}
    hooks = [optimizer.register_step_pre_hook(lambda *a: setattr(state["mode"], "in_update", True)),
             optimizer.register_step_post_hook(lambda *a: setattr(state["mode"], "in_update", False))]
    traced_times = []
    cupti.start()
    try:
        for step in range(traced):
            state["mode"] = mode = _Mode(layers, cupti, step, device)
            begin = time.perf_counter_ns()
            with mode:
                training_step()
            sync()
            traced_times.append(time.perf_counter_ns() - begin)
    finally:
        rows, dropped = cupti.stop()
        layers.close()
        for hook in hooks:
            hook.remove()
    _roles(model, optimizer, mode.by_key)
    _fill_roles(mode)
    times_of, kernels_of, owned, orphans = _durations(rows, mode, traced)
    summary = {
        "ops": len(mode.ops), "storages": len(mode.storages), "dropped": dropped,
        "step_ns_untraced": int(statistics.median(times)), "step_ns_traced": int(statistics.median(traced_times)),
        "torch_peak": peak_before, "rebuilt_peak": _rebuilt_peak(mode),
        "owned_kernel_share": owned / (owned + orphans) if owned + orphans else 0.0,
    }
    _write(path, mode, times_of, kernels_of, summary, name, batch, device)
    return summary


def _write(path, mode, times_of, kernels_of, summary, name, batch, device):
    used = [s for s in mode.storages if s.bytes > 0]
    number = {s.index: i for i, s in enumerate(used)}
    written = set()
    lines, carry = [], []
    device_name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    lines.append({
        "r": "header", "format": "superneurons-trace", "version": "0.1", "name": name,
        "origin": f"superneurons.capture, torch {torch.__version__}", "device": device_name, "lowering": "pytorch",
        "batch": batch, "step_ns_untraced": summary["step_ns_untraced"], "step_ns_traced": summary["step_ns_traced"],
        "dropped_records": summary["dropped"],
        "capabilities": {"accesses": "exact", "frees": "exact", "durations": "exact" if times_of else "none",
                         "workspaces": "exact" if device == "cuda" else "none", "layers": "exact", "phases": "exact",
                         "kernels": "exact" if times_of else "none"},
    })
    for i, s in enumerate(used):
        row = {"r": "tensor", "id": i, "name": f"t{i}.{s.layer}" if s.layer else f"t{i}", "bytes": s.bytes,
               "dtype": s.dtype, "shape": s.shape, "layer": s.layer, "role": s.role}
        if s.freed_before is not None and s.born >= 0:
            row["freed_before"] = s.freed_before
        lines.append(row)
    start = {number[s.index] for s in used if s.born < 0}
    for i, op in enumerate(mode.ops):
        reads, writes = _merged(op["reads"]), _merged(op["writes"])
        for index in list(reads):
            # Reading what nobody has written yet (an out-variant's buffer) is no read.
            if number.get(index) not in start and index not in written:
                del reads[index]
        def rows(hull):
            return [[number[k], b, e - b] if (b, e) != (0, mode.storages[k].bytes) else number[k]
                    for k, (b, e) in hull.items() if k in number]
        written.update(writes)
        ns = times_of.get(op["tag"], 0) // op["share"]
        row = {"r": "op", "id": i, "name": f"{i}.{op['kind'].removeprefix('aten::')}", "kind": op["kind"],
               "phase": op["phase"], "layer": op["layer"], "reads": rows(reads), "writes": rows(writes),
               "choices": [{"workspace": op["workspace"], "ns": ns}]}
        if op["once"]:
            row["once"] = sorted({number[s.index] for s in op["once"]})
        if op["group"] >= 0:
            row["launch_group"] = op["group"]
        if op["random"]:
            row["random"] = True
        if op["phase"] == "update":
            row["rerunnable"] = False
        if op["group"] < 0:
            row["kernels"] = kernels_of.get(op["tag"], [])
        lines.append(row)
    for tensor in sorted(start):
        carry.append({"r": "carry", "start": tensor})
    lines += carry
    lines.append({"r": "end", "tensors": len(used), "ops": len(mode.ops), "carry": len(carry),
                  "bytes": sum(s.bytes for s in used)})
    text = "\n".join(json.dumps(line, separators=(",", ":")) for line in lines) + "\n"
    temporary = f"{path}.tmp"
    opener = gzip.open if path.endswith(".gz") else open
    with opener(temporary, "wt", encoding="utf-8") as file:
        file.write(text)
    os.replace(temporary, path)
