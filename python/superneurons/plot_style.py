"""What all figures share: style, lines and areas told apart without colour, legends, files."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

try:
    import matplotlib
    from matplotlib.figure import Figure as Figure  # others take it from here
except ImportError as error:
    print(
        f"superneurons: plots need matplotlib ({error}; would be installed by "
        "apt-get install python3-matplotlib, or pip install matplotlib)",
        file=sys.stderr,
    )
    raise SystemExit(2) from None

from superneurons.files import BadInput, replacing

GIB = 1 << 30
COLUMN, PAGE = 3.4, 7.0  # inches: one and two columns of a paper

STYLE: dict[str, Any] = {
    "font.size": 8,
    "axes.labelsize": 8,
    "legend.fontsize": 7,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.titlesize": 8,
    "axes.linewidth": 0.6,
    "lines.linewidth": 1.1,
    "lines.markersize": 4,
    "hatch.linewidth": 0.5,
    "axes.grid": True,
    "grid.linewidth": 0.3,
    "grid.color": "0.8",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
    "pdf.fonttype": 42,
    "svg.hashsalt": "superneurons",
    "savefig.dpi": 200,
}
# Those of Okabe and Ito, which the colour-blind tell apart, but for their yellow, then darker ones
# from Paul Tol's. 13: as 12 markers turn at another pace, 156 series differ.
_COLOURS = ["#000000", "#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"]
_COLOURS += ["#882255", "#999933", "#666666", "#332288", "#7b4b2a", "#44aa99"]
# Told apart without colour: by line and marker.
_LINES = ["-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)), (0, (1, 3)), (0, (4, 1))]
_MARKERS = ["o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "*", "h"]
# From the bottom of a stack to its top: first what stays, then what comes and goes. Gray and hatch.
_AREAS = {
    "parameter": ("0.35", ""),
    "optimizer_state": ("0.55", "////"),
    "buffer": ("0.9", "++++"),
    "input": ("0.2", ""),
    "gradient": ("0.7", ""),
    "activation": ("0.85", "\\\\\\\\"),
    "saved": ("0.95", "xxxx"),
    "activation_gradient": ("0.5", "...."),
    "temporary": ("0.75", "||||"),
    "workspace": ("1", ""),
}


def in_style() -> Any:
    """A context in which figures are made in STYLE."""
    return matplotlib.rc_context(STYLE)


def look(index: int, count: int) -> dict[str, Any]:
    """Line, marker and colour of the index-th of `count` series, from large markers to small."""
    return {
        "linestyle": _LINES[index % len(_LINES)],
        "marker": _MARKERS[index % len(_MARKERS)],
        "color": _COLOURS[index % len(_COLOURS)],
        "markersize": 7 - 4 * index / max(count - 1, 1),
    }  # what lies below is seen


def unique(names: Sequence[str]) -> list[str]:
    """Each once, in order."""
    return list(dict.fromkeys(names))


def areas(axes: Any, x: Sequence[float], rows: dict[str, Sequence[int]]) -> None:
    """Stacked bytes over x by role; roles that never reach 1 % of the peak are one area, "rest"."""
    peak = max(map(sum, zip(*rows.values())), default=0)
    names = [name for name in _AREAS if max(rows.get(name, ()), default=0) >= 0.01 * peak]
    rest = [
        sum(column) for column in zip(*(row for name, row in rows.items() if name not in names))
    ]
    shown = {name: rows[name] for name in names} | ({"rest": rest} if any(rest) else {})
    base = [0.0] * len(x)
    for name, row in shown.items():
        top = [low + value / GIB for low, value in zip(base, row)]
        gray, hatch = _AREAS.get(name, ("0", ""))
        axes.fill_between(
            x,
            base,
            top,
            step="post",
            label=name.replace("_", " "),
            facecolor=gray,
            edgecolor="0.1",
            linewidth=0.3,
            hatch=hatch,
        )
        base = top
    axes.set_ylim(0, peak * 1.08 / GIB or 1)


def shortened(name: str) -> str:
    """A name that fits a legend: commands may be long, and differ most at their ends."""
    return name if len(name) <= 44 else f"{name[:20]}...{name[-21:]}"


def outside_legend(figure: Figure, handles: Any, names: Sequence[str], columns: int) -> None:
    """A legend below all panels, with room made for it."""
    lines = -(-len(names) // columns)
    inches = 0.15 * lines + 0.1
    width, height = figure.get_size_inches()
    figure.set_size_inches(width, height + inches)
    figure.get_layout_engine().set(
        rect=(0, inches / (height + inches), 1, height / (height + inches))
    )
    names = [shortened(name) for name in names]
    figure.legend(handles, names, loc="lower center", ncol=columns, handlelength=2.6)


def save(figure: Figure, path: str) -> None:
    """Writes to another name and renames; the same input gives the same bytes."""
    kind = os.path.splitext(path)[1][1:].lower()
    metadata: dict[str, dict[str, Any]] = {
        "pdf": {"CreationDate": None, "Creator": "superneurons", "Producer": None},
        "png": {"Software": None},
        "svg": {"Date": None, "Creator": "superneurons"},
    }
    if kind not in metadata:
        raise BadInput(f"'{path}' is no figure's name (would end in .pdf, .png or .svg)")
    try:
        with in_style(), replacing(path) as temporary:
            figure.savefig(temporary, format=kind, metadata=metadata[kind])
    except OSError as error:
        raise BadInput(f"cannot be written ({error.strerror})", path) from None
