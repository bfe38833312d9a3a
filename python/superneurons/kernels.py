"""Device times of the calls of a raw capture, from the activity log of the CUPTI collector."""

from __future__ import annotations

import json
import statistics
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from superneurons.files import BadInput
from superneurons.raw import CutShort, counts, lines_of_file

MOST_STEPS = 9  # of which medians are taken: the last ones that are alike
STRIPPED_CALL = 0xFFFFFFFF  # of device work that is not of the program


@dataclass
class Durations:
    """Device time by the number of the call, and what the recording lost."""

    ns: dict[int, int] = field(default_factory=dict)  # median over the steps where it was seen
    kernels: dict[int, list[tuple[str, int]]] = field(default_factory=dict)
    owned_ns: int = 0
    orphans: int = 0  # device activities of no op
    orphan_ns: int = 0
    incomplete: int = 0  # calls that were seen in one training step and not in another
    dropped: int = 0
    cut: bool = False  # the log ended early

    @property
    def capability(self) -> str:
        if not self.ns:
            return "none"
        return "inferred" if self.dropped or self.incomplete or self.cut else "exact"

    def losses(self) -> str:
        parts = []
        if self.dropped:
            parts.append(f"{self.dropped} records dropped")
        if self.orphans:
            parts.append(f"{self.orphans} device activities ({self.orphan_ns} ns) of no op")
        if self.incomplete:
            parts.append(f"{self.incomplete} ops not seen in every training step")
        return ", ".join(parts) or "no records lost"


def activities(path: str, durations: Durations) -> Iterator[dict[str, Any]]:
    """The activities of a log, which may end early; `dropped` and `cut` are noted."""
    line, ended = 0, False
    try:
        for text in lines_of_file(path):
            line += 1
            try:
                row = json.loads(text)
            except (ValueError, RecursionError):
                if text.endswith(b"\n"):
                    raise BadInput("is no JSON object", path, line) from None
                break
            if not isinstance(row, dict):
                raise BadInput("is no JSON object", path, line)
            if row.get("r") == "end":
                if not counts(row.get("dropped")):
                    raise BadInput('"dropped" is no count', path, line)
                durations.dropped += row["dropped"]
                ended = True
            elif "tag" in row and "end" in row:
                good = all(type(row.get(key)) is int for key in ("tag", "start", "end"))
                if not good or not 0 <= row["start"] <= row["end"] < 1 << 62:
                    raise BadInput("is no activity with tag, start and end", path, line)
                yield row
    except CutShort as error:
        if line == 0:
            raise BadInput(str(error), path) from None
    durations.cut = durations.cut or not ended


def durations_of(
    rows: Iterable[dict[str, Any]],
    alike: Sequence[int],
    calls: int,
    watched: int,
    durations: Durations | None = None,
) -> Durations:
    """Of device activities with their tags (training step + 1) << 32 | call, in any order: of the
    training steps `alike`, of `watched` in all, with `calls` each. The last of `alike` gives the
    kernels."""
    found = durations if durations is not None else Durations()
    used = list(alike)[-MOST_STEPS:]
    first = {step: array("q", [-1]) * calls for step in used}
    last = {step: array("q", [-1]) * calls for step in used}
    kernels: dict[int, list[tuple[int, str, int]]] = {}
    for row in rows:
        step, call = (row["tag"] >> 32) - 1, row["tag"] & 0xFFFFFFFF
        begin, end = row["start"], row["end"]
        if row["tag"] >= 0 and call == STRIPPED_CALL:
            continue
        if not 0 <= step < watched:
            found.orphans += 1
            found.orphan_ns += end - begin
            continue
        found.owned_ns += end - begin
        if step not in first or call >= calls:
            continue
        if first[step][call] < 0 or begin < first[step][call]:
            first[step][call] = begin
        last[step][call] = max(last[step][call], end)
        if step == used[-1]:
            name = row.get("name")
            kernels.setdefault(call, []).append((begin, str(name), end - begin))
    for call in range(calls):
        spans = [last[s][call] - first[s][call] for s in used if first[s][call] >= 0]
        if spans:
            found.incomplete += len(spans) < len(used)
            found.ns[call] = statistics.median_low(spans)
    found.kernels = {
        call: [(name, ns) for _, name, ns in sorted(parts)] for call, parts in kernels.items()
    }
    return found
