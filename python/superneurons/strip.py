"""Takes activation checkpointing out of a training step: what the program would do without it.

A run of `recompute` ops repeats a run of forward ops. Where the same calls, of the same modules, are
found again in forward, the repeated ops go, and who read their results reads the first ones, which
then live as long.
"""

from __future__ import annotations

from dataclasses import dataclass

from superneurons.steps import Range, SeenOp, Step, Storage


@dataclass
class Stripped:
    ops: int = 0  # that went
    left: int = 0  # recompute ops for which no forward op was found


def strip_recompute(step: Step) -> Stripped:
    """Changes the step."""
    done = Stripped()
    heirs: dict[int, Storage] = {}  # by serial of a storage that goes: the one that stays
    gone: set[int] = set()
    free = [i for i, op in enumerate(step.ops) if op.phase == "forward"]
    for run in _runs(step.ops):
        pairs = _match(step.ops, run, free)
        if not pairs:
            done.left += len(run)
            continue
        for again, first in pairs:
            for new, old in zip(step.ops[again].makes, step.ops[first].makes):
                heirs[new.serial] = old
            gone.add(again)
        done.left += len(run) - len(pairs)
    done.ops = len(gone)
    if gone:
        _drop(step, gone, heirs)
    return done


def _runs(ops: list[SeenOp]) -> list[list[int]]:
    """Neighbouring recompute ops."""
    runs: list[list[int]] = []
    for i, op in enumerate(ops):
        if op.phase == "recompute":
            if runs and runs[-1][-1] == i - 1:
                runs[-1].append(i)
            else:
                runs.append([i])
    return runs


def _key(op: SeenOp) -> tuple[object, ...]:
    return op.kind, op.layer, op.micro_batch, tuple(s.bytes for s in op.makes)


def _match(ops: list[SeenOp], run: list[int], free: list[int]) -> list[tuple[int, int]]:
    """Pairs (recompute op, forward op): the last place in forward where the run, or the longest
    beginning of it with all its ops in order, is found."""
    wanted = [_key(ops[i]) for i in run]
    keys = [_key(ops[i]) for i in free]
    best: list[tuple[int, int]] = []
    for start in range(len(keys) - 1, -1, -1):
        if keys[start] != wanted[0]:
            continue
        pairs, at = [(run[0], free[start])], start + 1
        for again, key in zip(run[1:], wanted[1:]):
            # Casts that autocast had in its cache the first time may lack in forward, and others
            # here: look a little ahead.
            ahead = next((j for j in range(at, min(at + 4, len(keys))) if keys[j] == key), None)
            if ahead is not None:
                pairs.append((again, free[ahead]))
                at = ahead + 1
        if len(pairs) == len(run):
            return pairs
        if len(pairs) > len(best):
            best = pairs
    return best


def _drop(step: Step, gone: set[int], heirs: dict[int, Storage]) -> None:
    def resolve(storage: Storage) -> Storage:
        while storage.serial in heirs:
            storage = heirs[storage.serial]
        return storage

    for storage in step.storages:
        heir = resolve(storage)
        if heir is not storage and heir.freed_before is not None:
            later = storage.freed_before
            heir.freed_before = None if later is None else max(heir.freed_before, later)
    before = [0]  # ops that stay before each position
    for i in range(len(step.ops)):
        before.append(before[-1] + (i not in gone))
    step.ops = [op for i, op in enumerate(step.ops) if i not in gone]
    for op in step.ops:
        op.reads, op.writes = _moved(op.reads, resolve), _moved(op.writes, resolve)
        op.makes = [s for s in op.makes if s.serial not in heirs]
    step.storages = [s for s in step.storages if s.serial not in heirs]
    for storage in step.storages:
        if storage.freed_before is not None:
            storage.freed_before = before[storage.freed_before]
        if storage.born >= 0:
            storage.born = before[storage.born]


def _moved(ranges: list[Range], resolve: object) -> list[Range]:
    return [(resolve(storage), offset, length) for storage, offset, length in ranges]  # type: ignore[operator]
