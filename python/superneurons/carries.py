"""How what is on the device at the start of a training step goes on into the next, and roles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from superneurons.steps import Range, SeenOp, Step, Storage


@dataclass
class Carries:
    """How each storage that was there before the step goes on (by serial)."""

    ends: dict[int, Storage] = field(default_factory=dict)  # into a new storage
    copied: dict[int, Storage] = field(default_factory=dict)  # so too, but overlapping in time
    unmatched: list[Storage] = field(default_factory=list)  # read, gone at the end, heir unknown


def merged(accesses: Sequence[Range]) -> dict[int, tuple[int, int]]:
    """Each storage once per op: the hull [begin, end) of its ranges, by serial."""
    hull: dict[int, tuple[int, int]] = {}
    for storage, offset, length in accesses:
        if length == 0:
            continue
        begin, end = hull.get(storage.serial, (offset, offset + length))
        hull[storage.serial] = (min(begin, offset), max(end, offset + length))
    return hull


class _Uses:
    """When storages are accessed."""

    def __init__(self, ops: Sequence[SeenOp]) -> None:
        self.first_write: dict[int, int] = {}
        self.last_access: dict[int, int] = {}
        self.needed: set[int] = set()
        self.at_call: dict[tuple[int, int], Storage] = {}  # by call and place: what it made
        for index, op in enumerate(ops):
            for serial in merged(op.reads):
                self.last_access[serial] = index
                if serial not in self.first_write:
                    self.needed.add(serial)
            for serial in merged(op.writes):
                self.last_access[serial] = index
                self.first_write.setdefault(serial, index)
            for storage in op.makes:
                if storage.maker is not None:
                    self.at_call[storage.maker[1:]] = storage


def carries_of(step: Step, alike_before: bool) -> Carries:
    """State that is a new storage each training step is found again by its name (parameter, buffer,
    gradient, optimizer state); what only a variable of Python holds, by the call that made it in the
    training step before and makes its heir now, if that step made the same calls."""
    found = Carries()
    uses = _Uses(step.ops)
    ends: dict[tuple[str, str], Storage] = {}
    for storage in step.storages:
        for name in storage.end_names:
            ends[name] = storage
    taken: set[int] = set()
    for storage in step.storages:
        if not storage.alive_at_start or storage.bytes == 0:
            continue
        end = _heir(step, storage, ends, uses, alike_before)
        needed = storage.serial in uses.needed
        if end is storage:
            continue
        made = end is not None and not end.alive_at_start and end.serial in uses.first_write
        if end is None or not made or end.bytes != storage.bytes or end.serial in taken:
            if needed:
                found.unmatched.append(storage)
            continue
        taken.add(end.serial)
        overlap = needed and uses.last_access[storage.serial] >= uses.first_write[end.serial]
        (found.copied if overlap else found.ends)[storage.serial] = end
    return found


def _heir(
    step: Step, storage: Storage, ends: dict[tuple[str, str], Storage], uses: _Uses, alike: bool
) -> Storage | None:
    """The storage that has the next value at the end of the step: mostly the same."""
    named = {id(end): end for name in storage.start_names if (end := ends.get(name)) is not None}
    if named:
        return next(iter(named.values())) if len(named) == 1 else None
    maker = storage.maker
    if not storage.start_names and maker is not None and maker[0] == step.number - 1:
        end = uses.at_call.get(maker[1:]) if alike else None
        return end if end is not None and end.freed_before is None else None
    return storage if storage.freed_before is None else None


def fill_roles(step: Step) -> None:
    """Roles of what has none by its name, by who makes and who reads it."""
    made_in: dict[int, str] = {}
    from_outside: set[int] = set()
    for op in step.ops:
        for storage, _, _ in op.writes:
            if storage.role is None and not storage.alive_at_start:
                if storage.serial not in made_in and not op.reads and op.kind in _COPIES:
                    from_outside.add(storage.serial)
                made_in.setdefault(storage.serial, op.phase)
                storage.layer = storage.layer or op.layer
    backward_reads = {
        s.serial
        for op in step.ops
        if op.phase in ("backward", "recompute")
        for s, _, _ in op.reads
    }
    for storage in step.storages:
        if storage.role is not None:
            continue
        if storage.alive_at_start or storage.serial in from_outside:
            storage.role = "input"
        elif made_in.get(storage.serial) == "backward":
            storage.role = "activation_gradient"
        elif storage.serial in backward_reads:
            storage.role = "activation"
        else:
            storage.role = "temporary"
    owners = {s.serial: s.layer for s in step.storages if s.role in _OF_LAYERS}
    for op in step.ops:
        if not op.layer:  # gradients that are added up, and updates
            op.layer = next((o for s, _, _ in op.writes if (o := owners.get(s.serial))), "")


_OF_LAYERS = ("gradient", "parameter", "optimizer_state")
_COPIES = {"aten::_to_copy", "aten::copy_"}
