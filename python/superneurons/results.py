"""What `simulate`, `compare` and `replay` write with --json, --memory and --timeline.

python -m superneurons.results best FILE.json     the fastest policy under the tightest budget
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from superneurons.files import (
    FORMAT_VERSION,
    BadInput,
    parse_json,
    read_bytes,
    read_json_object,
    run_main,
    what_file_it_is,
    write_text,
)


@dataclass(kw_only=True)
class Outcome:
    """One plan, predicted; of a replay also measured. Sizes in bytes, times in nanoseconds.

    The fields are those of the file, in the order in which the program writes them; one that may be
    None may lack.
    """

    policy: str  # with its options
    trace: str
    trace_hash: str
    allocator: str
    budget_bytes: int  # device memory that the plan was made for
    live_peak_bytes: int  # most bytes resident at one time
    placed_peak_bytes: int  # arena that it takes, holes included
    allocated_peak_bytes: int | None = None  # allocator pytorch_caching only, as is the next:
    reserved_peak_bytes: int | None = None  # what torch.cuda.max_memory_reserved() would say
    scope_peak_bytes: dict[str, int]  # by role, each on its own
    host_bytes: int  # pinned pool
    step_ns: int  # training step, predicted
    bound_ns: int  # no plan is faster
    compute_ns: int  # step_ns = compute_ns + sum of stall_ns
    offload_bytes: int
    prefetch_bytes: int
    cache: dict[str, int] | None = None  # hits, misses, evictions, clean_evictions
    recompute_runs: int
    recompute_ns: int
    stall_ns: dict[str, int]  # by cause
    slower_choices: int | None = None  # ops not at their fastest choice; None: none
    slower_choices_ns: int | None = None  # what that costs of compute_ns
    workspaces: list[dict[str, Any]] | None = None  # simulate --workspaces: a row per op
    # Replay only, but for the last.
    measured_step_ns: int | None = None
    used_peak_bytes: int | None = None  # what measured_peak_bytes should be
    measured_peak_bytes: int | None = None
    outside_bytes: int | None = None  # device memory outside the arena
    equal: bool | None = None  # to the reference, to the bit
    time_refused: str | None = None  # why step_ns does not predict measured_step_ns
    losses: list[float | None] | None = None  # per training step; None: not a number
    reference_losses: list[float | None] | None = None  # equal to them in every bit
    data: str | None = None  # data set trained on
    test_images: int | None = None  # of it, never trained on
    test_correct: int | None = None  # of these, told right after the last training step
    test_accuracy: float | None = None  # test_correct / test_images
    scaled_from: str | None = None  # device that the ops were measured on, their times scaled


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


# What is right for a field of that type, and whether a value is.
_TYPES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "str": ("a text", lambda value: isinstance(value, str)),
    "int": ("a whole number", _is_whole),
    "float": ("a number", _is_number),
    "bool": ("true or false", lambda value: isinstance(value, bool)),
    "dict[str, int]": (
        "an object of whole numbers",
        lambda value: isinstance(value, dict) and all(map(_is_whole, value.values())),
    ),
    "list[float | None]": (
        "an array of numbers",
        lambda value: isinstance(value, list)
        and all(each is None or _is_number(each) for each in value),
    ),
    "list[dict[str, Any]]": (
        "an array of objects",
        lambda value: isinstance(value, list) and all(isinstance(each, dict) for each in value),
    ),
}
_FIELDS = dataclasses.fields(Outcome)  # their types are texts
_REFUSAL = ("error", "floor_bytes", "short_bytes", "op")


@dataclass
class Results:
    """A result file: what was asked for, and one outcome per plan."""

    outcomes: list[Outcome]
    options: dict[str, str] = field(default_factory=dict)  # name to text
    file: str = ""  # where it was read from
    # Of compare, as the program writes them: cells without a plan, and what bounds every policy.
    infeasible: list[dict[str, Any]] = field(default_factory=list)
    bounds: list[dict[str, Any]] = field(default_factory=list)
    # Where a plan does not fit: error, floor_bytes, op, short_bytes. Empty otherwise.
    refusal: dict[str, Any] = field(default_factory=dict)


def _outcome(row: Any, what: str) -> Outcome:
    if not isinstance(row, dict):
        raise BadInput(f"{what} is no object")
    values = {}
    for each in _FIELDS:
        may_lack = each.type.endswith(" | None")
        if each.name not in row:
            if may_lack:
                continue
            raise BadInput(f'{what} lacks "{each.name}"')
        right, is_right = _TYPES[each.type.removesuffix(" | None")]
        value = row[each.name]
        if not is_right(value):
            raise BadInput(f'"{each.name}" of {what} is {json.dumps(value)[:60]} (would be {right})')
        values[each.name] = value
    return Outcome(**values)


def read_results(path: str) -> Results:
    """Reads a file of `--json`. BadInput names what is wrong with it."""
    value = read_json_object(path, "superneurons-result")
    rows = value.get("outcomes")
    if not isinstance(rows, list):
        raise BadInput('lacks "outcomes", an array', path)
    try:
        outcomes = [_outcome(row, f"outcome {i}") for i, row in enumerate(rows)]
    except BadInput as error:
        raise BadInput(error.message, path) from None
    lists: dict[str, list[dict[str, Any]]] = {}
    for key in ("infeasible", "bounds"):
        lists[key] = value.get(key, [])
        if not isinstance(lists[key], list) or not all(isinstance(x, dict) for x in lists[key]):
            raise BadInput(f'"{key}" is no array of objects', path)
    refusal = {key: value[key] for key in _REFUSAL if key in value}
    return Results(outcomes, dict(value.get("options", {})), path, **lists, refusal=refusal)


def format_results(results: Results) -> str:
    """The text that the program would write."""
    rows = []
    for outcome in results.outcomes:
        values = dataclasses.asdict(outcome)
        rows.append({key: value for key, value in values.items() if value is not None})
    value: dict[str, Any] = {
        "format": "superneurons-result",
        "version": FORMAT_VERSION,
        "options": results.options,
        "outcomes": rows,
    }
    if results.infeasible:
        value["infeasible"] = results.infeasible
    if results.bounds:
        value["bounds"] = results.bounds
    value |= results.refusal
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def write_results(results: Results, path: str) -> None:
    """Writes to another name and renames."""
    write_text(path, format_results(results))


def best(results: Results) -> Outcome:
    """The fastest outcome under the tightest budget of the file; of equals the first."""
    if not results.outcomes and results.refusal:
        raise BadInput(f"has no outcomes: {results.refusal['error']}", results.file)
    if not results.outcomes:
        raise BadInput("has no outcomes: no policy fits any of its budgets", results.file)
    return min(results.outcomes, key=lambda outcome: (outcome.budget_bytes, outcome.step_ns))


@dataclass
class Memory:
    """Bytes resident after each plan step, from `simulate --memory`; all lists are equally long."""

    trace: str
    trace_hash: str
    policy: str
    allocator: str
    budget_bytes: int
    kind: list[str]  # run, free, offload, prefetch, free_host
    name: list[str]  # of the op or tensor
    total: list[int]  # workspace included
    workspace: list[int]
    by_role: dict[str, list[int]]


def read_memory(path: str) -> Memory:
    """Reads a file of `simulate --memory`."""
    value = read_json_object(path, "superneurons-memory")
    for key in (each.name for each in dataclasses.fields(Memory)):
        if key not in value:
            raise BadInput(f'lacks "{key}"', path)
    memory = Memory(**{each.name: value[each.name] for each in dataclasses.fields(Memory)})
    columns: list[Sequence[object]] = [
        memory.kind,
        memory.name,
        memory.total,
        memory.workspace,
        *memory.by_role.values(),
    ]
    if len({len(column) for column in columns}) != 1:
        raise BadInput("has columns of different lengths", path)
    if not memory.total:
        raise BadInput("has no plan steps", path)
    return memory


@dataclass
class Span:
    """One command on a stream; times in microseconds from the start of the training step."""

    stream: str  # compute, offload, prefetch
    name: str
    start_us: float
    duration_us: float
    arguments: dict[str, Any]


@dataclass
class Timeline:
    """A Chrome trace of `simulate --timeline`."""

    trace: str
    policy: str
    step_ns: int
    streams: list[str]
    spans: list[Span]
    resident: list[tuple[float, dict[str, int]]]  # microseconds, bytes by role and workspace


def read_timeline(path: str) -> Timeline:
    """Reads a file of `simulate --timeline`."""
    content = read_bytes(path)
    try:
        value = parse_json(content.decode("utf-8"))
        data, events = value["otherData"], value["traceEvents"]
        threads = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
        spans = [
            Span(threads[e["tid"]], e["name"], float(e["ts"]), float(e["dur"]), e.get("args", {}))
            for e in events
            if e["ph"] == "X"
        ]
        resident = [(float(e["ts"]), e["args"]) for e in events if e["ph"] == "C"]
        return Timeline(
            data["trace"], data["policy"], data["step_ns"], list(threads.values()), spans, resident
        )
    except (KeyError, TypeError, ValueError) as error:
        other = what_file_it_is(content)
        if other and "timeline" not in other:
            raise BadInput(f"{other} (would be a timeline of `simulate --timeline`)", path) from None
        raise BadInput(f"is no timeline of `simulate --timeline` ({error!r})", path) from None


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m superneurons.results", description=__doc__)
    parser.add_argument("question", choices=["best"])
    parser.add_argument("file", help="of --json of compare, simulate or replay")
    options = parser.parse_args(arguments)
    return run_main(lambda: print(best(read_results(options.file)).policy))


if __name__ == "__main__":
    sys.exit(main())
