"""Draws the tables of superneurons.paper: ours dark and filled, the paper's light and hatched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from textwrap import wrap
from typing import Any

from superneurons import paper_data as paper
from superneurons import paper_fit
from superneurons.paper_lab import Table
from superneurons.plot_style import COLUMN, PAGE, Figure, outside_legend

_OURS: dict[str, Any] = {"facecolor": "0.35", "edgecolor": "0.1", "linewidth": 0.4}
_PAPER: dict[str, Any] = {
    "facecolor": "1",
    "edgecolor": "0.1",
    "linewidth": 0.4,
    "hatch": "////",
}
_THIRD: dict[str, Any] = {"facecolor": "0.75", "edgecolor": "0.1", "linewidth": 0.4}


def _bars(axes: Any, names: Sequence[str], sets: Sequence[tuple[str, Sequence[Any], Any]]) -> None:
    """Bars side by side in each group; a cell of None has none."""
    width = 0.8 / len(sets)
    for index, (label, values, look) in enumerate(sets):
        at = [i + (index - (len(sets) - 1) / 2) * width for i in range(len(names))]
        axes.bar(at, [value or 0 for value in values], width, label=label, **look)
    axes.set_xticks(range(len(names)), names)
    longest = max(map(len, names))
    if longest > 4 and longest * len(names) > 24:
        axes.tick_params(axis="x", rotation=40)
        for label in axes.get_xticklabels():
            label.set_horizontalalignment("right")
    axes.grid(False, axis="x")


def _legend(figure: Figure, panels: Any, columns: int) -> None:
    looks: dict[str, Any] = {}
    for axes in panels:
        looks.update({name: h for h, name in zip(*axes.get_legend_handles_labels())})
    outside_legend(figure, list(looks.values()), list(looks), columns)


def _pairs(
    table: Table, names: Sequence[str], panels: Sequence[tuple[str, str]], log: bool = False
) -> Figure:
    """A panel per (column, label of its axis): ours beside the paper's."""
    figure = Figure(figsize=(COLUMN if len(panels) == 1 else PAGE, 2.4))
    drawn = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (column, label) in zip(drawn, panels):
        sets = [
            ("ours", table.column(column, "ours"), _OURS),
            ("paper", table.column(column, "paper"), _PAPER),
        ]
        _bars(axes, names, sets)
        axes.set_ylabel(label)
        if log:
            axes.set_yscale("log")
    _legend(figure, drawn, 2)
    return figure


def _table1(table: Table) -> Figure:
    names = [
        f"{network.split(',')[0]}\n{strategy}"
        for network, strategy in zip(table.column("network"), table.column("strategy"))
    ]
    return _pairs(table, names, [("runs", "layers run again"), ("peak", "peak (MiB)")])


def _table2(table: Table) -> Figure:
    return _pairs(table, table.column("network"), [("speedup", "speed, pool over cudaMalloc")])


def _table3(table: Table) -> Figure:
    figure = Figure(figsize=(COLUMN, 2.4))
    axes = figure.subplots()
    batches = [int(batch) for batch in table.column("batch")]
    for column, whose, look in (
        ("no cache", "paper", {"color": "0.6", "marker": "s", "linestyle": "--"}),
        ("no cache", "ours", {"color": "0", "marker": "s"}),
        ("cache", "paper", {"color": "0.6", "marker": "o", "linestyle": "--"}),
        ("cache, pool", "ours", {"color": "0", "marker": "o"}),
    ):
        axes.plot(batches, table.column(column, whose), label=f"{column} ({whose})", **look)
    axes.set(xlabel="batch of AlexNet", ylabel="copied in a training step (GB)")
    _legend(figure, [axes], 2)
    return figure


def _table4(table: Table) -> Figure:
    measured = [
        (f"measured, H200: {row['policy']}".replace("+", " +"), depth)
        for depth, row in paper_fit.deeper()
    ]
    names = [*table.column("policy"), *(name for name, _ in measured)]
    rows = len(table.rows)
    trained: dict[str, Any] = {**_THIRD, "hatch": "...."}
    sets = [
        ("ours, planned", range(rows), table.column("depth", "ours"), _OURS, -0.2),
        ("paper", range(rows), table.column("depth", "paper"), _PAPER, 0.2),
        ("ours, trained for real", range(rows, len(names)), [d for _, d in measured], trained, 0),
    ]
    figure = Figure(figsize=(PAGE, 0.9 + 0.22 * len(names)))
    axes = figure.subplots()
    for label, places, depths, look, shift in sets:
        height = 0.6 if shift == 0 else 0.4
        drawn = [depth or 0 for depth in depths]
        bars = axes.barh([at + shift for at in places], drawn, height, label=label, **look)
        texts = [str(depth) if depth else "" for depth in depths]
        axes.bar_label(bars, texts, padding=2, fontsize=5.5)
    axes.set_yticks(range(len(names)), ["\n".join(wrap(name, 44)) for name in names])
    axes.tick_params(axis="y", labelsize=6)
    axes.set(xlabel="depth of the ResNet", ylim=(len(names) - 0.4, -0.6))
    axes.margins(x=0.08)
    axes.grid(False, axis="y")
    _legend(figure, [axes], 3)
    return figure


def _table5(table: Table) -> Figure:
    figure = Figure(figsize=(PAGE, 4.0))
    panels = list(figure.subplots(2, 3).flat)
    for axes, row in zip(panels, table.rows):
        cells = row[1:-1]
        _bars(
            axes,
            [*paper.FRAMEWORKS, "native"],
            [("ours", [*cells[0::2], row[-1]], _OURS), ("paper", [*cells[1::2], None], _PAPER)],
        )
        axes.set_title(row[0])
        axes.set_ylabel("largest batch")
    _legend(figure, panels, 2)
    return figure


def _figure2(table: Table) -> Figure:
    figure = Figure(figsize=(PAGE, 2.6))
    left, right = figure.subplots(1, 2, gridspec_kw={"width_ratios": [2, 1]})
    sets = [
        ("tensors (ours)", "tensors", "ours", _OURS),
        ("tensors (paper)", "tensors", "paper", _PAPER),
        ("with workspaces (ours)", "with workspaces", "ours", _THIRD),
        ("with workspaces (paper)", "with workspaces", "paper", {**_PAPER, "hatch": "...."}),
    ]
    cells = [
        (label, [value and value / 1024 for value in table.column(column, whose)], look)
        for label, column, whose, look in sets
    ]
    _bars(left, table.column("network"), cells)
    left.set_ylabel("memory (GiB)")
    speeds = [(f"speed ({w})", table.column("speed", w), k) for w, k in _WHOSE]
    _bars(right, table.column("network"), speeds)
    right.set_ylabel("speed with workspaces")
    handles, names = left.get_legend_handles_labels()
    outside_legend(figure, handles, names, 4)
    return figure


_WHOSE = (("ours", _OURS), ("paper", _PAPER))


def _figure8(table: Table) -> Figure:
    figure = Figure(figsize=(PAGE, 3.0))
    panels = figure.subplots(1, 2)
    networks = list(dict.fromkeys(table.column("network")))
    shades = [str(0.1 + 0.8 * i / 7) for i in range(len(paper.FIGURE8_KINDS))]
    for axes, what in zip(panels, ("time", "memory")):
        for whose, shift, hatch in (("ours", -0.2, ""), ("paper", 0.2, "////")):
            base = [0.0] * len(networks)
            for kind, shade in zip(paper.FIGURE8_KINDS, shades):
                cells = {
                    network: value
                    for network, k, value in zip(
                        table.column("network"), table.column("kind"), table.column(what, whose)
                    )
                    if k == kind
                }
                heights = [cells.get(network) or 0.0 for network in networks]
                axes.bar(
                    [i + shift for i in range(len(networks))],
                    heights,
                    0.38,
                    base,
                    facecolor=shade,
                    edgecolor="0.1",
                    linewidth=0.3,
                    hatch=hatch,
                    label=kind if whose == "ours" else None,
                )
                base = [low + height for low, height in zip(base, heights)]
        _bars(axes, networks, [("", [0] * len(networks), {})])
        axes.set_ylabel(f"{what} (%), left ours, right the paper's")
    handles, names = panels[0].get_legend_handles_labels()
    shown = [(h, n) for h, n in zip(handles, names) if n]
    outside_legend(figure, [h for h, _ in shown], [n for _, n in shown], 8)
    return figure


def _figure10(table: Table) -> Figure:
    figure = Figure(figsize=(PAGE, 2.6))
    panels = figure.subplots(1, 3, sharey=True)
    steps = [int(step) for step in table.column("step")]
    for axes, panel, title in zip(panels, "abc", ("liveness", "+ offload", "+ recompute")):
        ours, printed = (table.column(f"{panel} MiB", whose) for whose in ("ours", "paper"))
        axes.plot(steps, printed, color="0.6", linewidth=3.5, label="paper (digitised)")
        axes.plot(steps, ours, color="0", linewidth=0.9, label="ours")
        high = max(range(len(steps)), key=lambda i: ours[i] or 0)
        axes.annotate(
            f"{ours[high] or 0:.1f} at {steps[high]}",
            (steps[high], ours[high] or 0),
            xytext=(0, 4),
            textcoords="offset points",
            ha="center" if steps[high] < 40 else "right",
            fontsize=6,
        )
        axes.set(title=f"({panel}) {title}", xlabel="layer step")
    panels[0].set(ylabel="activations and gradients (MiB)", ylim=(0, 1650))
    _legend(figure, panels, 2)
    return figure


def _figure11(table: Table) -> Figure:
    figure = _pairs(table, table.column("network"), [("speed", "speed, with cache over without")])
    figure.axes[0].axhline(1, color="0.3", linewidth=0.6)
    return figure


def _figure12(table: Table) -> Figure:
    figure = Figure(figsize=(PAGE, 4.0))
    panels = list(figure.subplots(2, 2).flat)
    names = [name.split() for name in table.column("layer")]
    for axes, panel in zip(panels, paper.FIGURE12):
        rows = [row for row, name in zip(table.rows, names) if name[0] == f"({panel})"]
        sets = [
            ("assigned (ours)", [row[1] for row in rows], _OURS),
            ("wanted (ours)", [row[2] for row in rows], _THIRD),
            ("assigned (paper)", [row[3] for row in rows], _PAPER),
            ("wanted (paper)", [row[4] for row in rows], {**_PAPER, "hatch": "...."}),
        ]
        _bars(axes, [row[0].split()[1] for row in rows], sets)
        printed = paper.FIGURE12[panel]
        batch = f"batch {printed['batch']}" if printed["batch"] else "batch not stated"
        title = f"({panel}) the paper's {batch}, pool {printed['pool']}"
        axes.set(title=title, ylabel="MiB per image")
    _legend(figure, panels, 4)
    return figure


def _figure13(table: Table) -> Figure:
    figure = Figure(figsize=(PAGE, 4.0))
    panels = list(figure.subplots(2, 3).flat)
    spaces: dict[str, Any] = {**_THIRD, "hatch": "xxxx"}
    for axes, network in zip(panels, paper.FIGURE13):
        rows = [row for row in table.rows if row[0] == network]
        tensors = [row[3] for row in rows]
        sets = [
            ("tensors (ours)", tensors, _OURS),
            ("tensors and workspaces (paper)", [row[5] for row in rows], _PAPER),
        ]
        _bars(axes, [row[1] for row in rows], sets)
        above = [row[4] if tensor else None for row, tensor in zip(rows, tensors)]
        axes.bar(
            [i - 0.2 for i in range(len(rows))],
            [value or 0 for value in above],
            0.4,
            [tensor or 0 for tensor in tensors],
            label="workspaces recorded on an H200 (ours)",
            **spaces,
        )
        axes.set_title(network)
        axes.set_ylabel("memory (GiB)")
        axes.axhline(12, color="0.3", linewidth=0.6)
    _legend(figure, panels, 3)
    return figure


def _figure14(table: Table) -> Figure:
    figure = Figure(figsize=(PAGE, 4.0))
    panels = list(figure.subplots(2, 3).flat)
    for axes, (network, printed) in zip(panels, paper.FIGURE14.items()):
        first, distance = paper.FIGURE14_BATCHES[network]
        markers = {"caffe": "v", "mxnet": "^", "tensorflow": "D", "torch": "x"}
        for name, rates in printed.items():
            look: dict[str, Any] = {"color": "0.6", "linestyle": "--", "marker": markers.get(name, "o")}
            batches = [first + i * distance for i in range(len(rates))]
            axes.plot(batches, rates, label=f"{name} (paper)", markersize=3, **look)
        mine = [row for row in table.rows if row[0] == network and row[2]]
        sets: list[tuple[str, int, dict[str, Any]]] = [
            ("superneurons (ours, simulated)", 2, {"markerfacecolor": "0"}),
            ("the same, recorded network", 5, {"markerfacecolor": "1", "linestyle": ":"}),
        ]
        for label, column, look in sets:
            points = [(int(row[1]), row[column]) for row in mine if row[column]]
            look = {**look, "color": "0", "marker": "o", "markersize": 3}
            if points:
                axes.plot(*zip(*points), label=label, **look)
        axes.set(title=network, xlabel="batch", ylabel="images/s", ylim=(0, None))
    _legend(figure, panels, 3)
    return figure


def _scale(table: Table) -> Figure:
    names = [f"{row[0]}\nbatch {row[1]}" for row in table.rows]
    figure = Figure(figsize=(PAGE, 3.6))
    axes = figure.subplots()
    sets = [
        ("predicted", table.column("images/s, predicted", "ours"), _PAPER),
        ("measured on an H200", table.column("images/s, measured", "ours"), _OURS),
    ]
    _bars(axes, names, sets)
    axes.set(ylabel="images/s, arena of 12 GiB", yscale="log")
    _legend(figure, [axes], 2)
    return figure


DRAWINGS: dict[str, Callable[[Table], Figure]] = {
    "table1": _table1,
    "table2": _table2,
    "table3": _table3,
    "table4": _table4,
    "table5": _table5,
    "figure2": _figure2,
    "figure8": _figure8,
    "figure10": _figure10,
    "figure11": _figure11,
    "figure12": _figure12,
    "figure13": _figure13,
    "figure14": _figure14,
    "scale": _scale,
}


def draw(table: Table) -> Figure:
    """The figure of one of paper.ITEMS."""
    return DRAWINGS[table.name](table)
