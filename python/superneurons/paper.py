"""The tables and figures of SuperNeurons (PPoPP 2018), ours beside the printed ones.

    python -m superneurons.paper list                           what there is
    python -m superneurons.paper text ITEM...                   as text, on standard output
    python -m superneurons.paper all [ITEM...] [--golden DIR] [--figures DIR]
                                                                each as DIR/ITEM.txt, .pdf and .png

All that is ours comes from the `superneurons` program; the printed values stand in paper_data.py.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from superneurons import paper_fit, paper_memory, paper_speed, paper_workspaces
from superneurons.files import BadInput, run_main, write_text
from superneurons.paper_lab import Lab, Table


@dataclass
class Item:
    """A table or figure. `cheap`: seconds; the others search, and take minutes together."""

    make: Callable[[Lab], Table]
    cheap: bool


ITEMS: dict[str, Item] = {
    "table1": Item(paper_memory.table1, True),
    "table2": Item(paper_speed.table2, True),
    "table3": Item(paper_memory.table3, True),
    "table4": Item(paper_fit.table4, False),
    "table5": Item(paper_fit.table5, False),
    "figure2": Item(paper_workspaces.figure2, True),
    "figure8": Item(paper_memory.figure8, True),
    "figure10": Item(paper_memory.figure10, True),
    "figure11": Item(paper_speed.figure11, True),
    "figure12": Item(paper_workspaces.figure12, True),
    "figure13": Item(paper_workspaces.figure13, True),
    "figure14": Item(paper_speed.figure14, False),
    "frameworks": Item(paper_fit.frameworks, False),
    "scale": Item(paper_fit.scale, True),
}


def item(name: str) -> Item:
    """By name; BadInput lists the names."""
    if name not in ITEMS:
        raise BadInput(f"no table or figure '{name}' (would be {', '.join(ITEMS)})")
    return ITEMS[name]


def make(name: str, lab: Lab | None = None) -> Table:
    """One of them, computed now."""
    made = item(name).make
    if lab:
        return made(lab)
    with tempfile.TemporaryDirectory() as folder:
        return made(Lab(folder))


def draw(table: Table) -> object:
    """The table as a matplotlib figure (plot_style.save() writes it)."""
    from superneurons import paper_draw, plot_style

    with plot_style.in_style():
        return paper_draw.draw(table)


def _save_drawing(table: Table, folder: Path) -> None:
    from superneurons import paper_draw, plot_style

    if table.name not in paper_draw.DRAWINGS:
        return
    folder.mkdir(parents=True, exist_ok=True)
    figure = draw(table)
    for kind in ("pdf", "png"):
        plot_style.save(figure, str(folder / f"{table.name}.{kind}"))  # type: ignore[arg-type]


def make_all(names: Sequence[str], golden: str | None, figures: str | None) -> None:
    """Computes, writes texts to `golden` and drawings to `figures`."""
    for name in names:
        item(name)
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab(folder)
        for name in names or ITEMS:
            begin = time.monotonic()
            table = make(name, lab)
            if not table.rows:
                print(f"{name}: nothing to show ({table.settings[0]})", file=sys.stderr)
                continue
            if golden and name != "scale":
                Path(golden).mkdir(parents=True, exist_ok=True)
                write_text(str(Path(golden) / f"{name}.txt"), table.text())
            if figures:
                _save_drawing(table, Path(figures))
            print(f"{name}: {time.monotonic() - begin:.1f} s", file=sys.stderr)


def _print_texts(names: Sequence[str]) -> None:
    for name in names:
        item(name)
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab(folder)
        print("\n".join(make(name, lab).text() for name in names), end="")


def _print_list() -> None:
    dry = Lab(".", dry=True)
    for name, each in ITEMS.items():
        print(f"{name:<10} {each.make(dry).title}{'' if each.cheap else ' (takes a while)'}")


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m superneurons.paper",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=["list", "text", "all"])
    parser.add_argument("items", nargs="*", metavar="ITEM")
    parser.add_argument("--golden", metavar="DIR", help="folder for texts")
    parser.add_argument("--figures", metavar="DIR", help="folder for .pdf and .png")
    options = parser.parse_args(arguments)
    if options.command == "list":
        return run_main(_print_list)
    if options.command == "text":
        return run_main(lambda: _print_texts(options.items or list(ITEMS)))
    return run_main(lambda: make_all(options.items, options.golden, options.figures))


if __name__ == "__main__":
    sys.exit(main())
