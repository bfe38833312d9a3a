"""The first look over a raw capture: how many training steps it has, which of them are alike, and
whether it is whole."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

from superneurons.files import BadInput
from superneurons.raw import RawReader, counts, integer, text


@dataclass
class Overview:
    """What the first look over a raw capture tells."""

    header: dict[str, Any]
    shapes: list[str] = field(default_factory=list)  # of each step that ended: a hash of its calls
    calls: list[int] = field(default_factory=list)  # of each step
    step_ns: list[int] = field(default_factory=list)
    untouched: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    cut: str = ""
    why: str = ""  # the capture ended before all was captured that was asked for
    host_ns: dict[int, list[int]] = field(default_factory=dict)  # of calls, in steps alike

    def asked(self, option: str) -> int:
        """Training steps that were to be watched ("steps") or timed ("untouched"); 0: not known."""
        options = self.header.get("options")
        value = options.get(option) if isinstance(options, dict) else None
        return value if type(value) is int and value > 0 else 0

    def alike(self, step: int) -> list[int]:
        """The steps that made the same calls as this one."""
        if step >= len(self.shapes):
            return [step]
        return [i for i, shape in enumerate(self.shapes) if shape == self.shapes[step]]


def overview(reader: RawReader) -> Overview:
    """Reads all, keeps little."""
    found = Overview({})
    digest = hashlib.sha256()
    step = -1
    calls = 0
    for record in reader.records():
        kind = record.get("r")
        if kind == "call":
            calls += 1
            digest.update(f"{record.get('kind')},{record.get('phase')};".encode("utf-8", "replace"))
        elif kind == "step":
            step = integer(record, "step", reader)
            if step != len(found.calls):
                raise BadInput(f"step {step} comes where {len(found.calls)} is due",
                               reader.path, reader.line)  # fmt: skip
            digest, calls = hashlib.sha256(), 0
            found.calls.append(0)
        elif kind == "step_end":
            if step != len(found.shapes):
                raise BadInput("a step ends that did not begin", reader.path, reader.line)
            found.shapes.append(digest.hexdigest())
            found.step_ns.append(integer(record, "ns", reader))
        elif kind == "untouched":
            found.untouched = _untouched(record, reader)
        elif kind == "note":
            found.notes.append(text(record, "text", reader))
        elif kind == "end":
            found.why = text({"why": "", **record}, "why", reader)
        if found.calls:
            found.calls[-1] = max(found.calls[-1], calls)
    found.header, found.cut = reader.header, reader.cut
    return found


def _untouched(record: dict[str, Any], reader: RawReader) -> dict[str, Any]:
    for key in ("ns", "host_ns"):
        value = record.get(key)
        if not isinstance(value, list) or not all(map(counts, value)):
            raise BadInput(f'"{key}" is no list of times', reader.path, reader.line)
    return record
