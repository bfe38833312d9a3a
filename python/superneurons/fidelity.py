"""Predicted beside measured training steps as a Markdown table, the worst error first.

    python -m superneurons.fidelity fidelity.jsonl > fidelity.md

The rows are those of `superneurons_fidelity` (bench/fidelity.cpp), one per network, policy and
budget.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, fields

from superneurons.files import (
    BadInput,
    format_bytes,
    format_time,
    lines_of,
    json_problem,
    parse_json,
    read_bytes,
    run_main,
    what_file_it_is,
)

LARGE_ERROR = 8.0  # percent: above it a cell needs a named cause


@dataclass
class Cell:
    """One network under one policy and budget. Sizes in bytes, times in nanoseconds."""

    trace: str
    policy: str
    budget: str  # "100", "80" percent of the liveness peak, "floor", "max"
    budget_bytes: int
    error: str = ""  # why there is no measurement, "" if there is one
    step_ns: int = 0  # predicted
    measured_step_ns: int = 0  # median
    fastest_ns: int = 0
    slowest_ns: int = 0
    compute_ns: int = 0
    placed_peak_bytes: int = 0  # predicted
    measured_peak_bytes: int = 0
    outside_bytes: int = 0
    equal: bool = False
    difference: str = ""
    same_as: str = ""  # "POLICY BUDGET" of the cell whose replay this one's was, as plans are equal
    stall_ns: dict[str, int] = field(default_factory=dict)  # predicted, by cause

    @property
    def error_percent(self) -> float:
        """How much too long (above 0) or too short the prediction is."""
        return 100.0 * (self.step_ns / self.measured_step_ns - 1)

    @property
    def spread_percent(self) -> float:
        """Slowest over fastest measured training step: what no prediction can know."""
        return 100.0 * (self.slowest_ns / self.fastest_ns - 1) if self.fastest_ns else 0.0


def read_fidelity(path: str) -> list[Cell]:
    """Reads the rows; of a cell that was measured again the last counts."""
    known = {each.name for each in fields(Cell)}
    cells: dict[tuple[str, str, str], Cell] = {}
    data = read_bytes(path)
    other = what_file_it_is(data)
    if other:
        raise BadInput(f"{other} (would be rows of superneurons_fidelity)", path)
    for number, text in lines_of(data, path):
        try:
            row = parse_json(text)
        except ValueError as error:
            raise BadInput(json_problem(error), path, number) from None
        if not isinstance(row, dict):
            raise BadInput("is no JSON object", path, number)
        wanted = ["trace", "policy", "budget", "budget_bytes"]
        wanted += [] if "error" in row else ["step_ns", "measured_step_ns", "equal"]
        missing = [key for key in wanted if key not in row]
        if missing:
            raise BadInput(f'lacks "{missing[0]}"', path, number)
        cell = Cell(**{key: value for key, value in row.items() if key in known})
        if not cell.error and cell.measured_step_ns <= 0:
            raise BadInput('"measured_step_ns" is not above 0', path, number)
        cells[cell.trace, cell.policy, cell.budget] = cell
    return list(cells.values())


def _largest_loss(cell: Cell) -> str:
    cause, ns = max(cell.stall_ns.items(), key=lambda each: each[1], default=("", 0))
    return f"{cause} {100 * ns / cell.step_ns:.0f} %" if ns > 0 else "-"


def _budget(cell: Cell) -> str:
    if cell.budget == "floor":
        return "floor"
    percent = " %" if cell.budget.isdecimal() else ""
    return f"{cell.budget}{percent} ({format_bytes(cell.budget_bytes)})"


def _table(rows: Sequence[Sequence[str]], numbers: set[int]) -> str:
    """Markdown; columns in `numbers` flush right."""
    width = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            text.rjust(w) if i in numbers else text.ljust(w)
            for i, (text, w) in enumerate(zip(row, width))
        ]
        lines.append("| " + " | ".join(cells) + " |")
    rule = ["-" * (w + 1) + (":" if i in numbers else "-") for i, w in enumerate(width)]
    lines.insert(1, "|" + "|".join(rule) + "|")
    return "\n".join(lines) + "\n"


def format_summary(cells: Sequence[Cell]) -> str:
    """The figures that the table is judged by, as a Markdown list."""
    done = [cell for cell in cells if not cell.error]
    failed = len(cells) - len(done)
    if not done:
        return f"- cells: 0 measured, {failed} without a plan or a replay\n"
    replayed = [cell for cell in done if not cell.same_as]
    shared = f" ({len(replayed)} plans replayed, the others are the same)" if replayed != done else ""
    errors = [abs(cell.error_percent) for cell in done]
    keep_all = [abs(cell.error_percent) for cell in done if cell.policy == "keep_all"]
    equal = sum(cell.equal for cell in done)
    peaks = sum(cell.placed_peak_bytes == cell.measured_peak_bytes for cell in done)
    large = sum(error > LARGE_ERROR for error in errors)
    return (
        "\n".join(
            [
                f"- cells: {len(done)} measured{shared}, {failed} without a plan or a replay",
                f"- mean |error|: {sum(errors) / len(errors):.2f} %",
                (
                    f"- keep_all, worst |error|: {max(keep_all):.2f} %"
                    if keep_all
                    else "- keep_all: not measured"
                ),
                f"- equal to the bit: {equal} of {len(done)} ({100 * equal / len(done):.0f} %)",
                f"- measured peak is the predicted, to the byte: {peaks} of {len(done)}",
                f"- cells over {LARGE_ERROR:.0f} %: {large}",
            ]
        )
        + "\n"
    )


def format_fidelity(cells: Sequence[Cell]) -> str:
    """Summary; table, worst error first; the cells that could not be measured, with reasons."""
    text = format_summary(cells)
    done = sorted(
        (cell for cell in cells if not cell.error),
        key=lambda cell: (-abs(cell.error_percent), cell.trace, cell.policy, cell.budget),
    )
    if done:
        rows = [
            [
                "trace",
                "policy",
                "budget",
                "arena",
                "predicted",
                "measured",
                "error",
                "spread",
                "largest loss",
                "equal",
            ]
        ]
        rows += [
            [
                cell.trace,
                cell.policy,
                _budget(cell),
                format_bytes(cell.placed_peak_bytes),
                format_time(cell.step_ns),
                format_time(cell.measured_step_ns),
                f"{cell.error_percent:+.1f} %",
                f"{cell.spread_percent:.1f} %",
                _largest_loss(cell),
                "yes" if cell.equal else "NO",
            ]
            for cell in done
        ]
        text += "\n" + _table(rows, {3, 4, 5, 6, 7})
        text += (
            "\nError: predicted over measured. Spread: slowest over fastest measured step. "
            "Largest loss: share of the predicted step.\n"
        )
    failed = [cell for cell in cells if cell.error]
    if failed:
        rows = [["trace", "policy", "budget", "why it was not measured"]]
        rows += [
            [cell.trace, cell.policy, _budget(cell), cell.error.replace("|", "/")]
            for cell in failed
        ]
        text += "\n" + _table(rows, set())
    return text


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m superneurons.fidelity",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", help="rows of superneurons_fidelity (JSON Lines)")
    options = parser.parse_args(arguments)
    return run_main(lambda: print(format_fidelity(read_fidelity(options.file)), end=""))


if __name__ == "__main__":
    sys.exit(main())
