"""From the raw capture of a PyTorch program to a trace:

    python -m superneurons.convert RAW -o t.jsonl.gz

RAW is a file that `superneurons trace --keep-raw` left, or its folder. The last training step that
was watched to its end gives ops, accesses and frees; durations are medians over all that made the same
calls. Deterministic: the same files give the same bytes. Memory is that of one training step.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from dataclasses import dataclass, field
from typing import Any

from superneurons.carries import Carries, carries_of, fill_roles, merged
from superneurons.files import BadInput, format_bytes, format_time, run_main
from superneurons.kernels import MOST_STEPS, Durations, activities, durations_of
from superneurons.raw import RawReader
from superneurons.steps import Overview, SeenOp, Step, StepReader, Storage, overview
from superneurons.strip import Stripped, strip_recompute
from superneurons.traces import Access, Carry, Choice, Op, Tensor, Trace, write_trace

ROUNDING = 512  # bytes: what PyTorch's allocator gives out in
_OUTSIDE = "outside"  # the tensor of what the program holds and no training step touches


@dataclass
class Report:
    """What became of a raw capture."""

    path: str
    trace: Trace
    rebuilt_peak: int  # bytes, of tensors and workspaces, in pieces of 512
    allocated_peak: int = 0  # bytes, by PyTorch's allocator in an untouched training step
    owned: float = 0.0  # share of the kernels' time that belongs to ops; 0: not measured
    warnings: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """For people."""
        trace = self.trace
        first = f"{self.path}: {len(trace.ops)} ops, {len(trace.tensors)} tensors"
        if trace.step_ns_untraced:
            slower = trace.step_ns_traced / trace.step_ns_untraced
            first += f", training step {format_time(trace.step_ns_untraced)} untouched"
            first += f", {format_time(trace.step_ns_traced)} watched ({slower:.2f}x)"
        lines = [first]
        if self.allocated_peak:
            error = 100 * (self.rebuilt_peak / self.allocated_peak - 1)
            lines.append(
                f"peak {format_bytes(self.rebuilt_peak)} from the trace, "
                f"{format_bytes(self.allocated_peak)} by the allocator ({error:+.2f} %)"
            )
        if self.owned:
            lines.append(
                f"{100 * self.owned:.2f} % of the kernels' time belongs to ops, "
                f"{trace.dropped_records} dropped records"
            )
        return lines + ["warning: " + text for text in self.warnings]


def rebuilt_peak(step: Step) -> int:
    """Most bytes of storages alive at one time, with workspaces."""
    delta = [0] * (len(step.ops) + 1)
    for storage in step.storages:
        size = (storage.bytes + ROUNDING - 1) // ROUNDING * ROUNDING
        begin = 0 if storage.alive_at_start else min(max(storage.born, 0), len(step.ops))
        delta[begin] += size
        if storage.freed_before is not None:
            delta[max(storage.freed_before, begin)] -= size
    live = peak = 0
    for index, op in enumerate(step.ops):
        live += delta[index]
        peak = max(peak, live + op.workspace)
    return peak


def convert(
    raw: str, path: str, *, strip_recompute: bool = False, name: str = "", batch: int = 0
) -> Report:
    """Reads the raw capture (and the activity log beside it) and writes the trace. BadInput where
    it is damaged, or holds no op of a training step."""
    look = overview(RawReader(raw))
    number = len(look.shapes) - 1 if look.shapes else len(look.calls) - 1
    if number < 0:
        raise BadInput("no training step was watched" + _because(look), raw)
    step_reader = StepReader(RawReader(raw), number)
    step = step_reader.read()
    if not step.ops:
        raise BadInput("no op was seen in the training step" + _because(look), raw)
    _name_layers(step, step_reader.prefixes())
    trace, report = _trace(step, look, raw, strip_recompute)
    trace.name = name or os.path.splitext(look.header.get("name") or "pytorch")[0]
    trace.batch = batch
    write_trace(trace, path)
    report.path = path
    return report


def _because(look: Overview) -> str:
    reasons = look.notes + ([f"the capture {look.cut}"] if look.cut else [])
    return f" ({'; '.join(reasons)})" if reasons else ""


def _name_layers(step: Step, prefixes: dict[str, str]) -> None:
    def full(name: str) -> str:
        root, colon, path = name.partition(":")
        if not colon:
            return name
        return ".".join(part for part in (prefixes.get(root, ""), path) if part)

    for op in step.ops:
        op.layer = full(op.layer)
    for storage in step.storages:
        storage.layer = full(storage.layer)
        storage.start_names = [(role, full(name)) for role, name in storage.start_names]
        storage.end_names = [(role, full(name)) for role, name in storage.end_names]


def _durations(look: Overview, raw: str, step: int) -> Durations:
    found = Durations()
    if not look.header.get("activities"):
        return found
    folder, file = os.path.split(raw)
    log = os.path.join(folder, file.replace("capture.", "activities.", 1))
    if log == raw or not os.path.exists(log):
        found.cut = True
        return found
    return durations_of(
        activities(log, found), look.alike(step), look.calls[step], len(look.calls), found
    )


def _host_durations(look: Overview, raw: str, step: int) -> Durations:
    """On the CPU a call takes as long as its host does."""
    alike = look.alike(step)[-MOST_STEPS:]
    times: dict[int, list[int]] = {}
    now = -1
    for record in RawReader(raw).records():
        if record.get("r") == "step":
            now = record["step"]
        elif record.get("r") == "call" and now in alike and isinstance(record.get("host"), int):
            times.setdefault(record["c"], []).append(record["host"])
    found = Durations(ns={call: statistics.median_low(ns) for call, ns in times.items()})
    found.owned_ns = sum(map(sum, times.values()))
    return found


def _trace(step: Step, look: Overview, raw: str, strip: bool) -> tuple[Trace, Report]:
    cuda = look.header.get("device") == "cuda"
    durations = (_durations if cuda else _host_durations)(look, raw, step.number)
    warnings = list(look.notes)
    if look.cut:
        last = step.ops[-1]
        warnings.append(
            f"the capture {look.cut}: "
            + (f"training step {step.number + 1} of {look.header.get('options', {}).get('steps')} is "
               f"the last whole one" if step.whole else
               f"the training step is cut off after op {len(step.ops) - 1} ({last.kind})")
        )  # fmt: skip
    if step.died_inside:
        warnings.append(
            f"{step.died_inside} storages are freed in front of the op that has them: "
            "they are taken to live until it ends"
        )
    _issue_times(step, look, durations, cuda)
    stripped = strip_recompute(step) if strip else Stripped()
    if stripped.left:
        warnings.append(f"{stripped.left} recompute ops repeat no forward op and stay")
    _keep_ops(step, durations, cuda)
    _add_outside(step)
    fill_roles(step)
    before = step.number > 0 and step.number - 1 in look.alike(step.number)
    carries = carries_of(step, before)
    if carries.unmatched:
        total = sum(storage.bytes for storage in carries.unmatched)
        warnings.append(
            f"{len(carries.unmatched)} storages ({format_bytes(total)}) are read before they are "
            "written, and gone at the end of the training step: their next values are not known"
        )
    peak = rebuilt_peak(step)
    trace = _build(step, carries, durations)
    _fill_header(trace, look, durations, cuda, bool(stripped.ops))
    memory = look.header.get("memory") is True
    trace.capabilities.update(
        accesses="exact" if not carries.unmatched and not carries.copied and step.whole else "inferred",
        frees="exact" if step.whole and not step.died_inside else "inferred", layers="exact", phases="exact",
    )  # fmt: skip
    if memory:
        trace.capabilities["workspaces"] = "exact" if step.whole else "inferred"
    if cuda and durations.capability == "none":
        warnings.append("the times of kernels are not known")
    report = Report("", trace, peak, warnings=warnings)
    if not stripped.ops and not _offloaded(look):  # else that is the peak of another program
        report.allocated_peak = _whole(look.untouched.get("allocated"))
    if report.allocated_peak and abs(peak / report.allocated_peak - 1) > 0.01:
        warnings.append("the trace does not reproduce the peak of the allocator")
    if cuda and durations.owned_ns:
        report.owned = durations.owned_ns / (durations.owned_ns + durations.orphan_ns)
    return trace, report


def _offloaded(look: Overview) -> bool:
    return bool(look.header.get("options", {}).get("offload"))


def _fill_header(
    trace: Trace, look: Overview, durations: Durations, cuda: bool, stripped: bool
) -> None:
    header, untouched = look.header, look.untouched
    offload = _offloaded(look)
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
    if not stripped and not offload:  # else these are of another program
        trace.step_ns_untraced = _median(untouched.get("ns"))
        _measured(trace, allocated_peak=_whole(untouched.get("allocated")),
                  reserved_peak=_whole(untouched.get("reserved")))  # fmt: skip
    trace.step_ns_traced = _median(look.step_ns)
    trace.dropped_records = durations.dropped
    if cuda:
        _measured(trace, owned_ns=durations.owned_ns, orphan_ns=durations.orphan_ns,
                  orphans=durations.orphans)  # fmt: skip
    if durations.capability != "none":
        trace.capabilities["durations"] = durations.capability
        if cuda:
            trace.capabilities["kernels"] = durations.capability
            trace.capabilities["host_times"] = "inferred"


def _measured(trace: Trace, **values: int) -> None:
    for key, value in values.items():
        if hasattr(trace, key):
            setattr(trace, key, value)


def _whole(value: Any) -> int:
    return value if type(value) is int and 0 <= value < 1 << 62 else 0


def _median(values: Any) -> int:
    good = [_whole(value) for value in values] if isinstance(values, list) else []
    return int(statistics.median(good)) if good else 0


def _issue_times(step: Step, look: Overview, durations: Durations, cuda: bool) -> None:
    """Host times of ops. In watched training steps the host is slowed, so only the shares are
    theirs; the sum is what an untouched training step took the host that began with an idle device.
    Where the program waits for the device itself, that sum holds the waits too: then it is believed
    only if the device had little to do."""
    if not cuda:
        for op in step.ops:
            op.host_ns = 0
        return
    whole = _whole((look.untouched.get("host_ns") or [0])[0])
    own = sum(op.host_ns + op.before_ns for op in step.ops)
    calls = sum(op.before_calls for op in step.ops) + len(step.ops)
    if any(op.sync for op in step.ops) and sum(durations.ns.values()) > 0.7 * whole:
        whole = min(whole, own)
    spare = (whole - own) / calls if whole > own else 0.0
    scale = whole / own if 0 < whole < own else 1.0
    for op in step.ops:
        op.host_ns = round((op.host_ns + op.before_ns) * scale + spare * (1 + op.before_calls))


def _keep_ops(step: Step, durations: Durations, cuda: bool) -> None:
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


def _add_outside(step: Step) -> None:
    """What the allocator had given out that belongs to no storage seen: workspaces that libraries
    keep (cuBLAS), and tensors that the training step does not touch."""
    known = sum(
        (s.bytes + ROUNDING - 1) // ROUNDING * ROUNDING for s in step.storages if s.alive_at_start
    )
    if step.allocated > known:
        outside = Storage(-1, step.allocated - known, "u8", role="buffer")
        outside.alive_at_start = True
        outside.start_names = outside.end_names = [("buffer", _OUTSIDE)]
        step.storages.append(outside)


def _build(step: Step, carries: Carries, durations: Durations) -> Trace:
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
        trace.carry.append(
            Carry(number[serial], number[successor.serial if successor else serial])
        )
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


def raw_files(raw: str) -> list[str]:
    """The raw captures in a folder, or the file itself."""
    if not os.path.isdir(raw):
        return [raw]
    names = [n for n in os.listdir(raw) if n.startswith("capture.") and ".jsonl" in n]
    return [os.path.join(raw, name) for name in sorted(names)]


def with_suffix(path: str, suffix: str) -> str:
    """t.jsonl.gz → t.SUFFIX.jsonl.gz."""
    folder, name = os.path.split(path)
    stem, dot, rest = name.partition(".")
    return os.path.join(folder, f"{stem}.{suffix}{dot}{rest}" if stem else f"{name}.{suffix}")


def convert_all(
    raw: str, path: str, *, strip_recompute: bool = False, name: str = "", batch: int = 0
) -> list[Report]:
    """All processes of a raw capture: one trace per rank where there are several."""
    files = raw_files(raw)
    if not files:
        raise BadInput("there is no raw capture in this folder (would be capture.*.jsonl)", raw)
    reports = []
    for file in files:
        target = path
        if len(files) > 1:
            reader = RawReader(file)
            next(reader.records(), None)
            rank = reader.header.get("rank", -1)
            process = os.path.basename(file).split(".")[1]
            target = with_suffix(path, f"rank{rank}" if rank >= 0 else process)
        reports.append(
            convert(file, target, strip_recompute=strip_recompute, name=name, batch=batch)
        )
    return reports


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="superneurons convert", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("raw", help="a raw capture: a file, or the folder of several")
    parser.add_argument("-o", "--output", required=True, help="trace to write")
    parser.add_argument("--strip-recompute", action="store_true",
                        help="without what activation checkpointing computes again")  # fmt: skip
    parser.add_argument("--name", default="", help="of the trace (default: the script's)")
    parser.add_argument("--batch", type=int, default=0, help="samples in a training step")
    options = parser.parse_args(arguments)
    for report in convert_all(options.raw, options.output, name=options.name,
                              strip_recompute=options.strip_recompute,
                              batch=options.batch):  # fmt: skip
        print("\n".join(report.lines()), file=sys.stderr)


if __name__ == "__main__":
    sys.exit(run_main(lambda: main(sys.argv[1:])))
