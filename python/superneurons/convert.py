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

from superneurons.assemble import (
    add_outside,
    build,
    fill_header,
    fill_measured,
    issue_times,
    keep_ops,
    offloaded,
    whole,
)
from superneurons.carries import carries_of, fill_roles
from superneurons.compiled_trace import convert_compiled, live_peak
from superneurons.files import BadInput, check_writable, format_bytes, run_main
from superneurons.kernels import MOST_STEPS, Durations, activities, durations_of
from superneurons.overview import Overview, overview
from superneurons.raw import RawReader, integer
from superneurons.report import Report, rebuilt_peak
from superneurons.steps import Step, StepReader
from superneurons.strip import Stripped, strip_recompute
from superneurons.traces import write_trace

_KERNELS = "the times of kernels are not known"


def convert(
    raw: str,
    path: str,
    *,
    strip_recompute: bool = False,
    name: str = "",
    batch: int = 0,
    program: str = "",
) -> Report:
    """Reads the raw capture (and the activity log beside it) and writes the trace. BadInput where
    it is damaged, or holds no op of a training step. `program`: `superneurons`, which captures of
    compiled programs need; found by itself if that is ""."""
    look = overview(RawReader(raw))
    if look.header.get("compiled") is True:
        report = _compiled(look, raw, program)
    else:
        report = _of_ops(look, raw, strip_recompute)
    report.trace.name = name or os.path.splitext(look.header.get("name") or "pytorch")[0]
    report.trace.batch = batch
    write_trace(report.trace, path)
    report.path = path
    return report


def _of_ops(look: Overview, raw: str, strip: bool) -> Report:
    number = len(look.shapes) - 1 if look.shapes else len(look.calls) - 1
    if number < 0:
        raise BadInput("no training step was watched" + _because(look), raw)
    step_reader = StepReader(RawReader(raw), number)
    step = step_reader.read()
    if not step.ops:
        raise BadInput("no op was seen in the training step" + _because(look), raw)
    _name_layers(step, step_reader.prefixes())
    return _report(step, look, raw, strip)


def _compiled(look: Overview, raw: str, program: str) -> Report:
    """By kernels and the allocator's history."""
    if not look.shapes:
        raise BadInput("no training step was watched to its end" + _because(look), raw)
    trace, said = convert_compiled(raw, log_of(raw), program)
    trace.origin = (
        f"superneurons.capture, torch {look.header.get('torch', '?')}, compiled; {trace.origin}"
    )
    trace.device = look.header.get("device_name", "")
    trace.math = "tf32" if look.header.get("tf32") else "fp32"
    fill_measured(trace, look, True)
    report = Report("", trace, live_peak(trace), whole(look.untouched.get("allocated")))
    report.warnings = look.notes + _cut_short(look, "") + said
    return report


def _because(look: Overview) -> str:
    reasons = look.notes + [look.why] * bool(look.why)
    reasons += [f"the capture {look.cut}"] * bool(look.cut)
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


def log_of(raw: str) -> str:
    """Where the activities of the device are that belong to a raw capture."""
    folder, file = os.path.split(raw)
    return os.path.join(folder, file.replace("capture.", "activities.", 1))


def _durations(look: Overview, raw: str, step: int) -> Durations:
    found = Durations()
    if not look.header.get("activities"):
        return found
    log = log_of(raw)
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
    now, reader = -1, RawReader(raw)
    for record in reader.records():
        if record.get("r") == "step":
            now = integer(record, "step", reader)
        elif record.get("r") == "call" and now in alike:
            call = integer(record, "c", reader)
            times.setdefault(call, []).append(integer(record, "host", reader))
    found = Durations(ns={call: statistics.median_low(ns) for call, ns in times.items()})
    found.owned_ns = sum(map(sum, times.values()))
    return found


def _cut_short(look: Overview, cut_off: str) -> list[str]:
    """What is less than was asked for, and why; `cut_off` says where the training step is, if it is."""
    why = f"the capture {look.cut}" if look.cut else look.why or "the capture ended early"
    steps, untouched = look.asked("steps"), look.asked("untouched")
    seen = look.untouched.get("ns")
    timed = len(seen) if isinstance(seen, list) else 0
    found = []
    if cut_off:
        found.append(f"{why}: {cut_off}")
    elif len(look.shapes) < steps:
        found.append(f"{why}: training step {len(look.shapes)} of {steps} is the last that was "
                     "watched to its end")  # fmt: skip
    elif timed < untouched:
        found.append(f"{why}: {timed} of {untouched} untouched training steps were timed")
    elif look.cut:
        found.append(f"{why}: training step {len(look.shapes)} is the last whole one")
    if timed == 0 and untouched:
        found.append("the time and the peaks of an untouched training step are not known")
    return found


def _died_inside(step: Step) -> list[str]:
    if not step.died_inside:
        return []
    return [f"{step.died_inside} storages are freed in front of the op that has them: they are taken "
            "to live until it ends"]  # fmt: skip


def _report(step: Step, look: Overview, raw: str, strip: bool) -> Report:
    cuda = look.header.get("device") == "cuda"
    durations = (_durations if cuda else _host_durations)(look, raw, step.number)
    cut_off = f"the training step is cut off after op {len(step.ops) - 1} ({step.ops[-1].kind})"
    warnings = look.notes + _cut_short(look, "" if step.whole else cut_off) + _died_inside(step)
    issue_times(step, look, durations, cuda)
    stripped = strip_recompute(step) if strip else Stripped()
    if stripped.left:
        warnings.append(f"{stripped.left} recompute ops repeat no forward op and stay")
    keep_ops(step, durations, cuda)
    add_outside(step)
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
    trace = build(step, carries, durations)
    fill_header(trace, look, durations, cuda, bool(stripped.ops))
    memory = look.header.get("memory") is True
    trace.capabilities.update(
        accesses="exact" if not carries.unmatched and not carries.copied and step.whole else "inferred",
        frees="exact" if step.whole and not step.died_inside else "inferred", layers="exact", phases="exact",
    )  # fmt: skip
    if memory:
        trace.capabilities["workspaces"] = "exact" if step.whole else "inferred"
    if cuda and durations.capability == "none" and not any(_KERNELS in note for note in look.notes):
        warnings.append(_KERNELS)
    report = Report("", trace, peak, warnings=warnings)
    if not stripped.ops and not offloaded(look):  # else that is the peak of another program
        report.allocated_peak = whole(look.untouched.get("allocated"))
    if report.allocated_peak and abs(peak / report.allocated_peak - 1) > 0.01:
        warnings.append("the trace does not reproduce the peak of the allocator")
    if cuda and durations.owned_ns:
        report.owned = durations.owned_ns / (durations.owned_ns + durations.orphan_ns)
    return report


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
    raw: str,
    path: str,
    *,
    strip_recompute: bool = False,
    name: str = "",
    batch: int = 0,
    problems: list[BadInput] | None = None,
    program: str = "",
) -> list[Report]:
    """All processes of a raw capture: one trace per rank where there are several. What is wrong
    with one of them goes to `problems`, if given, and the others are converted all the same."""
    files = raw_files(raw)
    if not files:
        raise BadInput("there is no raw capture in this folder (would be capture.*.jsonl)", raw)
    reports = []
    for file in files:
        try:
            target = _target(file, path) if len(files) > 1 else path
            reports.append(
                convert(
                    file,
                    target,
                    strip_recompute=strip_recompute,
                    name=name,
                    batch=batch,
                    program=program,
                )
            )
        except BadInput as problem:
            if problems is None:
                raise
            problems.append(problem)
    return reports


def _target(file: str, path: str) -> str:
    """Where the trace of one of several processes goes."""
    reader = RawReader(file)
    next(reader.records(), None)
    rank = reader.header.get("rank", -1)
    process = os.path.basename(file).split(".")[1]
    return with_suffix(path, f"rank{rank}" if type(rank) is int and rank >= 0 else process)


def keep(raw: str, path: str, command: str) -> str:
    """The sentence that says where a raw capture is that could not be converted, and how to."""
    return f"the raw capture is kept in {raw}: `{command} {raw} -o {path}` makes a trace of it"


def main(arguments: list[str], called: str = "superneurons convert") -> None:
    parser = argparse.ArgumentParser(prog=called, description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("raw", help="a raw capture: a file, or the folder of several")
    parser.add_argument("-o", "--output", required=True, help="trace to write")
    parser.add_argument("--strip-recompute", action="store_true",
                        help="without what activation checkpointing computes again")  # fmt: skip
    parser.add_argument("--name", default="", help="of the trace (default: the script's)")
    parser.add_argument("--batch", type=int, default=0, help="samples in a training step")
    parser.add_argument("--superneurons", default="", metavar="PROGRAM",
                        help="the program, for captures of compiled programs")  # fmt: skip
    options = parser.parse_args(arguments)
    check_writable(options.output)
    for report in convert_all(options.raw, options.output, name=options.name,
                              strip_recompute=options.strip_recompute,
                              batch=options.batch, program=options.superneurons):  # fmt: skip
        print("\n".join(report.lines()), file=sys.stderr)


if __name__ == "__main__":
    sys.exit(run_main(lambda: main(sys.argv[1:], "python -m superneurons.convert")))
