"""What the paper's tables and figures are made with: calls of `superneurons`, and tables as text.

Nothing is decided here: traces, plans, sizes and times are the program's.
"""

from __future__ import annotations

import concurrent.futures
import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from superneurons.program import find_program

ROOT = Path(__file__).resolve().parents[2]  # of the source tree
MIB, GIB = 1 << 20, 1 << 30
_In = TypeVar("_In")
_Out = TypeVar("_Out")


@dataclass
class Column:
    """A column of a table: "ours" is computed, "paper" is printed, "" names the row."""

    name: str
    whose: str = ""
    format: str = ""  # of numbers; texts stay as they are

    def text(self, cell: Any) -> str:
        """The cell as text; "-" where there is none."""
        if cell is None:
            return "-"
        return cell if isinstance(cell, str) else format(cell, self.format)

    @property
    def title(self) -> str:
        """As it heads the column."""
        return f"{self.name} ({self.whose})" if self.whose else self.name


@dataclass
class Table:
    """One of the paper's tables or figures in numbers, ours beside the printed ones."""

    name: str  # "table1", "figure10"
    title: str
    settings: list[str]  # network, batch, lowering, device, policies: how ours were made
    columns: list[Column]
    rows: list[list[Any]]
    notes: list[str] = field(default_factory=list)  # why ours differ from print
    results: list[str] = field(default_factory=list)  # computed from the rows, as ours

    def column(self, name: str, whose: str = "") -> list[Any]:
        """The cells of a column."""
        (index,) = [i for i, c in enumerate(self.columns) if (c.name, c.whose) == (name, whose)]
        return [row[index] for row in self.rows]

    def text(self) -> str:
        """All of it, with the command that makes it again."""
        cells = [[c.title for c in self.columns]]
        cells += [[c.text(cell) for c, cell in zip(self.columns, row)] for row in self.rows]
        widths = [max(map(len, column)) for column in zip(*cells)]
        lines = [f"{self.title}", f"made by: python -m superneurons.paper text {self.name}", ""]
        lines += [f"  {setting}" for setting in self.settings] + [""]
        for row in cells:
            padded = [
                cell.ljust(width) if i == 0 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths))
            ]
            lines.append("  ".join(padded).rstrip())
        for part in (self.results, self.notes):
            lines += [""] + part if part else []
        return "\n".join(lines) + "\n"


class Lab:
    """Calls the program; traces that it builds stay in `folder` and are built once.

    A `dry` one calls nothing and answers None to all, as where nothing fits: what the paper prints
    is in its tables, and nothing of ours.
    """

    def __init__(self, folder: str | os.PathLike[str], dry: bool = False) -> None:
        self.folder = Path(folder)
        self.dry = dry
        self._guard = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}
        self._answers: dict[tuple[str, ...], dict[str, Any] | None] = {}
        self._files = 0
        program = None if dry else find_program()
        if program is None and not dry:
            raise RuntimeError("no `superneurons` program: build it, or name it in $SUPERNEURONS")
        self._program = program or ""

    def call(self, *words: str | os.PathLike[str]) -> dict[str, Any] | None:
        """What the command writes as JSON; None where the answer is no (exit code 1)."""
        if self.dry:
            return None
        command = [self._program, *map(str, words), "--json", "-"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 1:
            return None
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
        value: dict[str, Any] = json.loads(done.stdout)
        return value

    def once(self, *words: str) -> dict[str, Any] | None:
        """As call(), but the same words are asked once only."""
        with self._guard:
            lock = self._locks.setdefault(f"call {words}", threading.Lock())
        with lock:
            if words not in self._answers:
                self._answers[words] = self.call(*words)
            return self._answers[words]

    def map(self, work: Callable[[_In], _Out], items: Iterable[_In]) -> list[_Out]:
        """work(item) of all items in order, as many at a time as there are processors."""
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            return list(pool.map(work, items))

    def build(self, network: str, batch: int, *options: str) -> Path | None:
        """The trace of `build NETWORK --batch N OPTIONS`."""
        name = "_".join([network.replace(":", "-"), str(batch), *(o.strip("-") for o in options)])
        file = self.folder / f"{name}.jsonl.gz"
        with self._guard:
            lock = self._locks.setdefault(name, threading.Lock())
        with lock:
            if not self.dry and not file.exists():
                words = ["build", network, "--batch", str(batch), *options, "-o", str(file)]
                done = subprocess.run([self._program, *words], capture_output=True, text=True)
                if done.returncode != 0:
                    raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
        return None if self.dry else file

    def recorded(self, name: str) -> Path | None:
        """A recorded trace of the source tree, or None."""
        file = ROOT / "traces" / f"{name}.jsonl.gz"
        return file if file.exists() and not self.dry else None

    def simulate(
        self, trace: Path | None, policy: str, *options: str, budget: int | str | None = None
    ) -> dict[str, Any] | None:
        """The outcome of a plan; None where it does not fit."""
        if trace is None:
            return None
        words = ["simulate", str(trace), "--policy", policy, *options]
        value = self.call(*words, *(["--budget", str(budget)] if budget else []))
        outcome: dict[str, Any] | None = value["outcomes"][0] if value else None
        return outcome

    def series(self, trace: Path | None, option: str, policy: str, *options: str) -> Any:
        """What `simulate OPTION FILE` writes: --memory or --layer-steps."""
        with self._guard:
            self._files += 1
            file = self.folder / f"series-{self._files}.json"
        outcome = self.simulate(trace, policy, *options, option, str(file))
        return json.loads(file.read_text()) if outcome else None

    def show(self, trace: Path | None, *options: str) -> dict[str, Any] | None:
        """What is in a trace."""
        return self.call("show", trace, *options) if trace else None


def columns(names: Sequence[str]) -> list[Column]:
    """Columns from "NAME", "NAME|ours|FORMAT" or "NAME|paper|FORMAT"."""
    return [Column(*name.split("|")) for name in names]


def ratio(part: float | None, whole: float | None) -> float | None:
    """part / whole, or None where one of them lacks."""
    return part / whole if part is not None and whole else None


def mib(count: int | None) -> float | None:
    """Bytes in MiB, or None where there are none."""
    return None if count is None else count / MIB
