"""Plans: what to do with memory in one training step, in issue order (traces/FORMAT.md).

A policy can be any program that reads a request from standard input and answers with a plan:

    request = read_request(sys.stdin.buffer)
    sys.stdout.write(format_plan(Plan(trace_hash(request.trace), ...)))
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from superneurons.fields import (
    INDEX,
    INT64,
    TEXT,
    Field,
    RecordReader,
    compare_count,
    header_line,
    list_of,
    one_of,
    read_fields,
    record_of,
    written,
)
from superneurons.files import BadInput, json_problem, parse_json, read_bytes, write_text
from superneurons.profiles import DeviceProfile, parse_profile
from superneurons.traces import Trace, parse_trace

FORMAT = "superneurons-plan"
VERBS = ("run", "free", "offload", "prefetch", "free_host")
PLACES = ("device", "host", "nowhere")


@dataclass(slots=True)
class Step:
    """One plan step; what each verb means stands in ir/plan.h."""

    verb: str  # one of VERBS
    subject: int  # the op of run, else a tensor
    choice: int = 0  # run only
    discard: list[int] = field(default_factory=list)  # run only: outputs sent to scratch


@dataclass(slots=True)
class Budget:
    """Bytes of the device, and of pinned host memory."""

    device: int
    host: int = 0


@dataclass(slots=True)
class Reason:
    """Why a step was taken, for a person."""

    step: int
    text: str


@dataclass(slots=True)
class Plan:
    """Steps for one trace, named by its hash."""

    trace_hash: str
    budget: Budget
    policy: str = ""  # with its options
    allocator: str = "first_fit"
    begin: list[str] = field(default_factory=list)  # one of PLACES per carry of the trace
    steps: list[Step] = field(default_factory=list)
    reasons: list[Reason] = field(default_factory=list)


_BUDGET = (Field("device", INT64), Field("host", INT64, 0))
_HEADER = (
    Field("trace", TEXT, name="trace_hash"),
    Field("policy", TEXT, ""),
    Field("allocator", TEXT),
    Field("budget", record_of(Budget, _BUDGET)),
    Field("begin", list_of(one_of(PLACES)), []),
)
_RUN = (Field("choice", INDEX, 0), Field("discard", list_of(INDEX), []))
_REASON = (Field("step", INDEX), Field("text", TEXT))


class _Reader(RecordReader):
    format = FORMAT

    def __init__(self) -> None:
        self.plan = Plan("", Budget(0))

    def header(self, record: dict[str, Any]) -> None:
        self.plan = Plan(**read_fields(record, _HEADER, what="the header"))
        if self.plan.budget.device < 0 or self.plan.budget.host < 0:
            raise BadInput("the budget is negative (would be 0 or more)")

    def record(self, record: dict[str, Any], kind: str) -> None:
        plan = self.plan
        if kind == "":
            plan.steps.append(self._step(record))
        elif kind == "reason":
            plan.reasons.append(
                Reason(**read_fields(record, _REASON, what=f"reason {len(plan.reasons)}"))
            )
        elif kind == "end":
            compare_count(record, "steps", len(plan.steps))
            compare_count(record, "reasons", len(plan.reasons))

    def _step(self, record: dict[str, Any]) -> Step:
        what = f"step {len(self.plan.steps)}"
        verbs = [verb for verb in VERBS if verb in record]
        if len(verbs) != 1:
            raise BadInput(
                f"{what} does {'several things' if verbs else 'nothing known'} (would have one of "
                + ", ".join(f'"{verb}"' for verb in VERBS)
                + ")"
            )
        subject = read_fields(record, [Field(verbs[0], INDEX)], what=what)[verbs[0]]
        run = read_fields(record, _RUN, what=what) if verbs == ["run"] else {}
        return Step(verbs[0], subject, **run)

    def progress(self) -> str:
        return f"step {len(self.plan.steps) - 1}" if self.plan.steps else "the header"


def parse_plan(text: str | bytes, name: str = "the plan") -> Plan:
    """Reads the text of a plan; whether it is lawful is the question of `superneurons check`."""
    reader = _Reader()
    reader.read(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text, name)
    return reader.plan


def read_plan(path: str) -> Plan:
    """Reads a plan file, packed if its name ends in .gz; "-" is standard input."""
    return parse_plan(read_bytes(path), path)


def format_plan(plan: Plan) -> str:
    """The canonical text, the same bytes that the program writes."""
    lines = [header_line(FORMAT, plan, _HEADER)]
    for step in plan.steps:
        run = written(step, _RUN) if step.verb == "run" else []
        lines.append("{" + ",".join([f'"{step.verb}":{step.subject}', *run]) + "}\n")
    for reason in plan.reasons:
        lines.append("{" + ",".join(['"r":"reason"', *written(reason, _REASON)]) + "}\n")
    lines.append(f'{{"r":"end","steps":{len(plan.steps)},"reasons":{len(plan.reasons)}}}\n')
    return "".join(lines)


def write_plan(plan: Plan, path: str) -> None:
    """Writes to another name and renames."""
    write_text(path, format_plan(plan))


@dataclass
class Request:
    """What a policy program is asked for."""

    trace: Trace
    profile: DeviceProfile
    budget: Budget
    allocator: str


def read_request(stream: BinaryIO | None = None) -> Request:
    """What `--policy exec:` writes: the trace's text, then profile and budget, a line each."""
    lines = (stream or sys.stdin.buffer).read().rstrip(b"\n").split(b"\n")
    if len(lines) < 3:
        raise BadInput("is no request (would be a trace, a profile and a budget)", "standard input")
    trace = parse_trace(b"\n".join(lines[:-2]), "standard input")
    profile = parse_profile(lines[-2], "standard input", len(lines) - 1)
    try:
        limits = parse_json(lines[-1].decode("utf-8"))
        values = read_fields(limits, (_HEADER[3], _HEADER[2]), what="the request")
    except ValueError as error:
        raise BadInput(
            json_problem(error), "standard input", len(lines)
        ) from None
    return Request(trace, profile, values["budget"], values["allocator"])
