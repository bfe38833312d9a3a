"""From a training step as values to the ops and tensors of a trace."""

from __future__ import annotations

import statistics
from typing import Any

from superneurons.carries import Carries, merged
from superneurons.kernels import Durations
from superneurons.memory_history import rounded
from superneurons.overview import Overview
from superneurons.steps import SeenOp, Step, Storage
from superneurons.traces import Access, Carry, Choice, Op, Tensor, Trace

_BETWEEN_RANKS = ("c10d::", "_c10d_functional::")  # all take part in each run
_OUTSIDE = "outside"  # the tensor of what the program holds and no training step touches


def issue_times(step: Step, look: Overview, durations: Durations, cuda: bool) -> None:
    """Host times of ops. In watched training steps the host is slowed, so only the shares are
    theirs; the sum is what an untouched training step took the host that began with an idle device.
    Where the program waits for the device itself, that sum holds the waits too: then it is believed
    only if the device had little to do."""
    if not cuda:
        for op in step.ops:
            op.host_ns = 0
        return
    total = whole((look.untouched.get("host_ns") or [0])[0])
    own = sum(op.host_ns + op.before_ns for op in step.ops)
    calls = sum(op.before_calls for op in step.ops) + len(step.ops)
    if any(op.sync for op in step.ops) and sum(durations.ns.values()) > 0.7 * total:
        total = min(total, own)
    spare = (total - own) / calls if total > own else 0.0
    scale = total / own if 0 < total < own else 1.0
    for op in step.ops:
        op.host_ns = round((op.host_ns + op.before_ns) * scale + spare * (1 + op.before_calls))


def keep_ops(step: Step, durations: Durations, cuda: bool) -> None:
    """Drops calls that only read and did nothing on the device; their host time goes on."""
    kept: list[SeenOp] = []
    before = [0]
    host = 0
    for op in step.ops:
        keep = bool(op.writes) or op.sync or (cuda and op.call in durations.ns)
        before.append(before[-1] + keep)
        if keep:
            op.host_ns += host
            host = 0
            kept.append(op)
        else:
            host += op.host_ns
    step.ops = kept
    for storage in step.storages:
        if storage.freed_before is not None:
            storage.freed_before = before[storage.freed_before]
        if storage.born >= 0:
            storage.born = before[storage.born]


def add_outside(step: Step) -> None:
    """What the allocator had given out that belongs to no storage seen: workspaces that libraries
    keep (cuBLAS), and tensors that the training step does not touch."""
    known = sum(rounded(s.bytes) for s in step.storages if s.alive_at_start)
    if step.allocated > known:
        outside = Storage(-1, step.allocated - known, "u8", role="buffer")
        outside.alive_at_start = True
        outside.start_names = outside.end_names = [("buffer", _OUTSIDE)]
        step.storages.append(outside)


def build(step: Step, carries: Carries, durations: Durations) -> Trace:
    accessed = {s.serial for op in step.ops for s, _, _ in op.reads + op.writes}
    used = [s for s in step.storages if s.bytes > 0 and (s.serial in accessed or s.alive_at_start)]
    number = {s.serial: i for i, s in enumerate(used)}
    trace = Trace("", lowering="pytorch")
    names: set[str] = set()
    trace.tensors = [_tensor(i, s, carries, names) for i, s in enumerate(used)]
    written: set[int] = set()
    start = {s.serial for s in used if s.alive_at_start}
    for i, op in enumerate(step.ops):
        reads, writes = merged(op.reads), merged(op.writes)
        # Reading what nobody has written yet (an out-variant's buffer) is no read.
        reads = {s: r for s, r in reads.items() if s in start or s in written}
        written.update(writes)
        trace.ops.append(_op(i, op, durations))
        for hull, accesses in ((reads, trace.ops[i].reads), (writes, trace.ops[i].writes)):
            accesses += [Access(number[s], b, e - b) for s, (b, e) in hull.items() if s in number]
        once = {number[s.serial] for s in op.once if s.serial in number}
        trace.ops[i].once = sorted(once & {access.tensor for access in trace.ops[i].writes})
    for serial, end in carries.copied.items():
        trace.ops.append(_copy(len(trace.ops), number[end.serial], number[serial], end.bytes))
    for serial in sorted(start, key=lambda each: number[each]):
        successor = carries.ends.get(serial)
        trace.carry.append(Carry(number[serial], number[successor.serial if successor else serial]))
    return trace


def _tensor(i: int, storage: Storage, carries: Carries, names: set[str]) -> Tensor:
    moved = not storage.alive_at_start or storage.serial in carries.ends
    named = storage.end_names or storage.start_names
    name = f"t{i}.{storage.layer}" if storage.layer else f"t{i}"
    if named:
        role, own = named[-1]
        name = own + (".grad" if role == "gradient" else "")
    if name in names:
        name = f"{name}#{i}"
    names.add(name)
    return Tensor(
        name=name,
        bytes=storage.bytes,
        role=storage.role or "temporary",
        dtype=storage.dtype,
        shape=storage.shape,
        layer=storage.layer,
        freed_before=storage.freed_before if moved else None,
    )


def _op(i: int, op: SeenOp, durations: Durations) -> Op:
    return Op(
        name=f"{i}.{op.kind.removeprefix('aten::')}",
        kind=op.kind,
        phase=op.phase,
        layer=op.layer,
        choices=[Choice(workspace=op.workspace, ns=durations.ns.get(op.call, 0) // op.share)],
        kernels=durations.kernels.get(op.call, []) if op.group < 0 else [],
        launch_group=op.group,
        random=op.random,
        micro_batch=op.micro_batch,
        host_ns=op.host_ns,
        host_sync_ns=1000 if op.sync else 0,
        rerunnable=op.phase != "update" and not op.kind.startswith(_BETWEEN_RANKS),
    )


def _copy(i: int, end: int, start: int, size: int) -> Op:
    """Not of the program: brings a new value to where the next training step finds it, for an op
    reads the old storage while the new one has been begun, so that they cannot share a home."""
    return Op(
        name=f"{i}.carry",
        kind="superneurons::carry",
        phase="update",
        reads=[Access(end, 0, size)],
        writes=[Access(start, 0, size)],
        choices=[Choice()],
        rerunnable=False,
    )


def fill_header(
    trace: Trace, look: Overview, durations: Durations, cuda: bool, stripped: bool
) -> None:
    header = look.header
    offload = offloaded(look)
    parts = [f"superneurons.capture, torch {header.get('torch', '?')}"]
    if durations.kernels:
        parts.append(durations.losses())
    if stripped:
        parts.append("recompute stripped")
    if offload:
        parts.append("captured with saved tensors on the host")
    if header.get("world", 1) != 1:
        parts.append(f"rank {header.get('rank')} of {header.get('world')}")
    trace.origin = "; ".join(parts)
    trace.device = str(header.get("device_name", ""))
    trace.math = "tf32" if header.get("tf32") is True else "fp32"
    fill_measured(trace, look, not stripped and not offload)
    trace.dropped_records = durations.dropped
    if cuda:
        _measured(trace, owned_ns=durations.owned_ns, orphan_ns=durations.orphan_ns,
                  orphans=durations.orphans)  # fmt: skip
    if durations.capability != "none":
        trace.capabilities["durations"] = durations.capability
        if cuda:
            trace.capabilities["kernels"] = durations.capability
            trace.capabilities["host_times"] = "inferred"


def fill_measured(trace: Trace, look: Overview, same: bool) -> None:
    """Of whole training steps; those that nobody watched are of the `same` program, or left out."""
    if same:
        trace.step_ns_untraced = _median(look.untouched.get("ns"))
        _measured(trace, allocated_peak=whole(look.untouched.get("allocated")),
                  reserved_peak=whole(look.untouched.get("reserved")))  # fmt: skip
    trace.step_ns_traced = _median(look.step_ns)


def _measured(trace: Trace, **values: int) -> None:
    for key, value in values.items():
        if hasattr(trace, key):
            setattr(trace, key, value)


def whole(value: Any) -> int:
    return value if type(value) is int and 0 <= value < 1 << 62 else 0


def _median(values: Any) -> int:
    good = [whole(value) for value in values] if isinstance(values, list) else []
    return int(statistics.median(good)) if good else 0


def offloaded(look: Overview) -> bool:
    options = look.header.get("options")
    return isinstance(options, dict) and bool(options.get("offload"))
