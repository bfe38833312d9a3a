"""The raw capture of a compiled program (superneurons.compiled) as a trace: every kernel is an op,
every piece of the allocator's memory a tensor. What ops read and write is not known.

The collector's log gets, in the place of the driver's allocations that are segments of PyTorch's
allocator, those of the allocator, and a range for each training step; then `superneurons convert`
makes a trace of it, as of any CUDA program. Host times of the allocator are on another clock than
those of the log; the two are compared by calls that stand in both."""

from __future__ import annotations

import heapq
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, Any

from superneurons.files import BadInput
from superneurons.program import find_program
from superneurons.raw import CutShort, RawReader, integer, lines_of_file
from superneurons.traces import Trace, read_trace

RANGE = "training step"
_WAIT = "cudaDeviceSynchronize"
_FIRST_RANGE = 0xFFFF0000  # numbers of our ranges: above those of the program
_DRIFT = 100_000  # ns between the clocks, from the first boundary to the last, that are no matter
_BLUR = 20_000  # ns by which times of one call on the two clocks may be off
_SEARCHED = 64  # waits at either end of the log, among which those of a boundary are


@dataclass
class _Look:
    """What a first look over the raw capture tells."""

    clocks: list[list[tuple[int, int]]] = field(default_factory=list)  # of boundaries, in ns
    segments: set[int] = field(default_factory=set)  # addresses


def _look(reader: RawReader) -> _Look:
    found = _Look()
    for record in reader.records():
        if record.get("r") == "boundary":
            clocks = record.get("clocks")
            if not isinstance(clocks, list) or not clocks or not all(map(_is_span, clocks)):
                raise BadInput('"clocks" is no list of [before, after]', reader.path, reader.line)
            found.clocks.append([(before, after) for before, after in clocks])
        elif record.get("r") == "segment":
            found.segments.add(integer(record, "address", reader))
    return found


def _is_span(value: Any) -> bool:
    return (isinstance(value, list) and len(value) == 2 and all(type(n) is int for n in value)
            and 0 <= value[0] <= value[1] < 1 << 62)  # fmt: skip


def _rows(log: str) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """The records of a log, each as it stands there too; as far as it is whole."""
    line = 0
    damaged = False
    try:
        for text in lines_of_file(log):
            if damaged:
                raise BadInput("is no JSON object", log, line)
            line += 1
            try:
                row = json.loads(text)
            except (ValueError, RecursionError):
                damaged = True  # unless another line follows, it is only cut off
                continue
            if not isinstance(row, dict):
                raise BadInput("is no JSON object", log, line)
            yield text, row
    except CutShort:
        return


def _waits(log: str, count: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]], int]:
    """Start and end of the first and of the last `count` waits for the device in a log, in order;
    and how many names it has."""
    names: list[bool] = []  # whether it is that of a wait
    first: list[tuple[int, int]] = []  # a heap of negative times: the latest of them is on top
    last: list[tuple[int, int]] = []  # a heap: the earliest of them is on top
    for _, row in _rows(log):
        if row.get("r") == "name":
            names.append(str(row.get("text")).startswith(_WAIT))
        elif row.get("r") == "call":
            name, start, end = row.get("name"), row.get("start"), row.get("end")
            if type(name) is not int or not 0 <= name < len(names) or not _is_span([start, end]):
                raise BadInput("has a call without name, start and end", log)
            if names[name]:
                assert isinstance(start, int) and isinstance(end, int)
                for heap, item in ((last, (start, end)), (first, (-start, -end))):
                    heapq.heappush(heap, item)
                    if len(heap) > count:
                        heapq.heappop(heap)
    return sorted((-start, -end) for start, end in first), sorted(last), len(names)


def clock_offset(
    clocks: list[tuple[int, int]], waits: list[tuple[int, int]], near: int | None = None
) -> int | None:
    """What the host's clock shows when that of the log shows 0: such that some waits in a row, the
    first that it can be, lie each between the times that were taken before and after it. `near`: and
    is about that. None where no offset does it."""
    for place in range(len(waits) - len(clocks) + 1):
        pairs = list(zip(clocks, waits[place:]))
        low = max(before - start for (before, _), (start, _) in pairs)
        high = min(after - end for (_, after), (_, end) in pairs)
        found = (low + high) // 2
        if low - high < _BLUR and (near is None or abs(found - near) < _DRIFT):
            return found
    return None


def _offset_of(look: _Look, log: str) -> tuple[int, int]:
    """The offset of the clocks, which must be the same at the end, and the number of names."""
    first, last, names = _waits(log, _SEARCHED)
    offset = clock_offset(look.clocks[0], first)
    if offset is not None and last and last[-1][0] + offset > look.clocks[-1][-1][0] - _BLUR:
        offset = clock_offset(look.clocks[-1], last, offset)  # else the log ends before
    if offset is None:
        raise BadInput("its clock cannot be told from the calls that wait for the device", log)
    return offset, names


def convert_compiled(raw: str, log: str, program: str) -> tuple[Trace, list[str]]:
    """The trace, whose name and measured times are yet to be filled in, and remarks. BadInput
    where something is damaged, or there is no whole training step."""
    look = _look(RawReader(raw))
    if len(look.clocks) < 2:
        raise BadInput("no training step was watched to its end", raw)
    if not os.path.exists(log):
        raise BadInput("is not there: of a compiled program nothing is known without it", log)
    offset, names = _offset_of(look, log)
    found = program or find_program()
    if found is None:
        raise BadInput(
            "needs the `superneurons` program: build it, or name it in $SUPERNEURONS", raw
        )
    with tempfile.TemporaryDirectory(prefix="superneurons-") as folder:
        merged, target = os.path.join(folder, "log"), os.path.join(folder, "t.jsonl")
        with open(merged, "wb") as file:
            _merge(raw, log, look, offset, names, file)
        done = subprocess.run(
            [found, "convert", merged, "-o", target, "--window", f"range:{RANGE}"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        said = [line.removeprefix("superneurons: ") for line in done.stderr.splitlines() if line]
        said = [line.replace(merged, log) for line in said]
        if done.returncode != 0:
            raise BadInput("; ".join(said) or "cannot be converted", raw)
        notes = [line.removeprefix("note: ") for line in said if line.startswith("note: ")]
        known = (target, f'the training step is the range "{RANGE}"')  # said elsewhere
        return read_trace(target), [note for note in notes if not note.startswith(known)]


def _merge(raw: str, log: str, look: _Look, offset: int, names: int, file: IO[bytes]) -> None:
    """The log as it is, but for what the driver gave to PyTorch's allocator; then what that gave
    out, and the training steps."""

    def write(**record: Any) -> None:
        file.write(json.dumps(record).encode() + b"\n")

    end: bytes = b""
    for text, row in _rows(log):
        if row.get("r") == "end":
            end = text
        elif row.get("r") not in ("allocate", "free") or row.get("address") not in look.segments:
            file.write(text)
    write(r="name", id=names, text=RANGE)
    for step, (begin, close) in enumerate(zip(look.clocks, look.clocks[1:])):
        number = _FIRST_RANGE + step
        write(r="open", range=number, name=names, thread=0, at=max(begin[-1][1] - offset, 0))
        write(r="close", range=number, at=max(close[0][0] - offset, 0))
    now = 0  # events come in order, and their times are of microseconds: none at the same time
    reader = RawReader(raw)
    for record in reader.records():
        kind = record.get("r")
        if kind not in ("held", "allocate", "free"):
            continue
        if kind != "held":
            now = max(now + 1, integer(record, "us", reader) * 1000 - offset)
        write(r="free" if kind == "free" else "allocate", at=now,
              address=integer(record, "address", reader), bytes=integer(record, "bytes", reader))  # fmt: skip
    file.write(end)


def live_peak(trace: Trace) -> int:
    """Most bytes of tensors alive at one op. Sizes are those that the allocator gave out."""
    born = {carry.start: 0 for carry in trace.carry}
    for index, op in enumerate(trace.ops):
        for access in op.writes:
            born.setdefault(access.tensor, index)
    delta = [0] * (len(trace.ops) + 1)
    for number, begin in born.items():
        tensor = trace.tensors[number]
        delta[begin] += tensor.bytes
        if tensor.freed_before is not None:
            delta[max(tensor.freed_before, begin)] -= tensor.bytes
    live = peak = 0
    for change in delta[:-1]:
        live += change
        peak = max(peak, live)
    return peak
