"""From what the dispatch mode saw of a PyTorch training step to a trace."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from superneurons.dispatch import Mode, Range, SeenOp, Storage
from superneurons.traces import Access, Carry, Choice, Op, Tensor, Trace


@dataclass
class Durations:
    """Device time by the number of the dispatched call, and what the recording lost."""

    ns: dict[int, int] = field(default_factory=dict)  # median over the steps where it was seen
    kernels: dict[int, list[tuple[str, int]]] = field(default_factory=dict)
    owned_ns: int = 0
    orphans: int = 0  # device activities of no op
    orphan_ns: int = 0
    incomplete: int = 0  # calls that were seen in one training step and not in another
    dropped: int = 0

    @property
    def capability(self) -> str:
        if not self.ns:
            return "none"
        return "inferred" if self.dropped or self.incomplete else "exact"

    def losses(self) -> str:
        parts = []
        if self.dropped:
            parts.append(f"{self.dropped} records dropped")
        if self.orphans:
            parts.append(f"{self.orphans} device activities ({self.orphan_ns} ns) of no op")
        if self.incomplete:
            parts.append(f"{self.incomplete} ops not seen in every training step")
        return ", ".join(parts) or "no records lost"


def durations_of(rows: Sequence[dict[str, Any]], steps: int, dropped: int) -> Durations:
    """Of device activities with their tags (training step + 1) << 32 | call, in any order."""
    found = Durations(dropped=dropped)
    spans: dict[int, dict[int, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        busy = row["end"] - row["start"]
        if not 0 < row["tag"] >> 32 <= steps:
            found.orphans += 1
            found.orphan_ns += busy
            continue
        found.owned_ns += busy
        spans[row["tag"] & 0xFFFFFFFF][row["tag"] >> 32].append(row)
    for call, by_step in spans.items():
        found.incomplete += len(by_step) < steps
        found.ns[call] = statistics.median_low(
            max(r["end"] for r in part) - min(r["start"] for r in part) for part in by_step.values()
        )
        last = sorted(by_step[max(by_step)], key=lambda row: row["start"])
        found.kernels[call] = [(row["name"], row["end"] - row["start"]) for row in last]
    return found


@dataclass
class Carries:
    """How each storage that was there before the step goes on (by index)."""

    ends: dict[int, Storage] = field(default_factory=dict)  # into a new storage
    copied: dict[int, Storage] = field(default_factory=dict)  # so too, but overlapping in time
    unmatched: list[Storage] = field(default_factory=list)  # read, gone at the end, heir unknown


def carries_of(mode: Mode) -> Carries:
    """State that is a new storage each training step is found again by its name (parameter, buffer,
    optimizer state); what only a variable of Python holds, by the storage object, which in the
    training step before was the result of the op that makes its heir now."""
    found = Carries()
    first_write: dict[int, int] = {}
    last_access: dict[int, int] = {}
    needed: set[int] = set()
    for index, op in enumerate(mode.ops):
        reads, writes = merged(op.reads), merged(op.writes)
        for storage in reads:
            last_access[storage] = index
            if storage not in first_write:
                needed.add(storage)
        for storage in writes:
            last_access[storage] = index
            first_write.setdefault(storage, index)
    taken: set[int] = set()
    for storage in mode.storages:
        if storage.born >= 0 or storage.index not in needed:
            continue
        end = _heir(mode, storage)
        if end is storage:
            continue
        made = end is not None and end.born >= 0 and end.index in first_write
        if end is None or not made or end.bytes != storage.bytes or end.index in taken:
            found.unmatched.append(storage)
            continue
        taken.add(end.index)
        overlap = last_access[storage.index] >= first_write[end.index]
        (found.copied if overlap else found.ends)[storage.index] = end
    return found


def _heir(mode: Mode, storage: Storage) -> Storage | None:
    """The storage that has the next value at the end of the step: mostly the same."""
    named = {id(end): end for name in storage.names if (end := mode.end.get(name)) is not None}
    if named:
        return next(iter(named.values())) if len(named) == 1 else None
    before = mode.before
    if before is not None and storage.previous >= 0 and not storage.names:
        alike = len(before.ops) == len(mode.ops) and len(before.storages) == len(mode.storages)
        if before.storages[storage.previous].born >= 0:
            end = mode.storages[storage.previous] if alike else None
            return end if end is not None and end.freed_before is None else None
    return storage if storage.freed_before is None else None


def fill_roles(mode: Mode) -> None:
    """Roles of what has none by its name, by who makes and who reads it."""
    made_in: dict[int, str] = {}
    for op in mode.ops:
        for storage, _, _ in op.writes:
            if storage.role is None and storage.born >= 0:
                made_in.setdefault(storage.index, op.phase)
                storage.layer = storage.layer or op.layer
    backward_reads = {
        s.index for op in mode.ops if op.phase == "backward" for s, _, _ in op.reads
    }
    for storage in mode.storages:
        if storage.role is not None:
            continue
        if storage.born < 0:
            storage.role = "input"
        elif made_in.get(storage.index) == "backward":
            storage.role = "activation_gradient"
        elif storage.index in backward_reads:
            storage.role = "activation"
        else:
            storage.role = "temporary"


def rebuilt_peak(mode: Mode) -> int:
    """Most bytes of storages alive at one time (rounded to 512 as the caching allocator does), with
    workspaces."""
    delta: dict[int, int] = defaultdict(int)
    for storage in mode.storages:
        size = (storage.bytes + 511) // 512 * 512
        delta[max(storage.born, 0)] += size
        if storage.freed_before is not None:
            delta[storage.freed_before] -= size
    live = peak = 0
    for index, op in enumerate(mode.ops):
        live += delta[index]
        peak = max(peak, live + op.workspace)
    return peak


def merged(accesses: Sequence[Range]) -> dict[int, tuple[int, int]]:
    """Each storage once per op: the hull [begin, end) of its ranges, by index."""
    hull: dict[int, tuple[int, int]] = {}
    for storage, offset, length in accesses:
        if length == 0:
            continue
        begin, end = hull.get(storage.index, (offset, offset + length))
        hull[storage.index] = (min(begin, offset), max(end, offset + length))
    return hull


def trace_of(mode: Mode, durations: Durations, name: str) -> tuple[Trace, Carries]:
    """The trace, without what the caller alone knows (origin, device, batch, step times)."""
    fill_roles(mode)
    carries = carries_of(mode)
    used = [s for s in mode.storages if s.bytes > 0]
    number = {s.index: i for i, s in enumerate(used)}
    trace = Trace(name, lowering="pytorch")
    trace.tensors = [_tensor(i, s, carries) for i, s in enumerate(used)]
    written: set[int] = set()
    start = {s.index for s in used if s.born < 0}
    for i, op in enumerate(mode.ops):
        reads, writes = merged(op.reads), merged(op.writes)
        # Reading what nobody has written yet (an out-variant's buffer) is no read.
        reads = {s: r for s, r in reads.items() if s in start or s in written}
        written.update(writes)
        trace.ops.append(_op(i, op, durations))
        for hull, accesses in ((reads, trace.ops[i].reads), (writes, trace.ops[i].writes)):
            accesses += [Access(number[s], b, e - b) for s, (b, e) in hull.items() if s in number]
        trace.ops[i].once = sorted({number[s.index] for s in op.once if s.index in number})
    for index, end in carries.copied.items():
        trace.ops.append(_copy(len(trace.ops), number[end.index], number[index], end.bytes))
    for index in sorted(start):
        end = carries.ends.get(index)
        trace.carry.append(Carry(number[index], number[end.index] if end else number[index]))
    if durations.capability != "none":
        trace.capabilities.update(durations=durations.capability, kernels=durations.capability)
    exact = not carries.unmatched and not carries.copied
    trace.capabilities.update(
        accesses="exact" if exact else "inferred", frees="exact", layers="exact", phases="exact"
    )
    return trace, carries


def _tensor(i: int, storage: Storage, carries: Carries) -> Tensor:
    moved = storage.born >= 0 or storage.index in carries.ends
    return Tensor(
        name=f"t{i}.{storage.layer}" if storage.layer else f"t{i}",
        bytes=storage.bytes,
        role=storage.role or "temporary",
        dtype=storage.dtype,
        shape=storage.shape,
        layer=storage.layer,
        freed_before=storage.freed_before if moved else None,
    )


def _op(i: int, op: SeenOp, durations: Durations) -> Op:
    ns = durations.ns.get(op.tag, 0) // op.share
    return Op(
        name=f"{i}.{op.kind.removeprefix('aten::')}",
        kind=op.kind,
        phase=op.phase,
        layer=op.layer,
        choices=[Choice(workspace=op.workspace, ns=ns)],
        kernels=durations.kernels.get(op.tag, []) if op.group < 0 else [],
        launch_group=op.group,
        random=op.random,
        rerunnable=op.phase != "update",
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
