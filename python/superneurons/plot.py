"""Figures with matplotlib, for print: readable in grayscale, units on the axes, no dates inside.

    python -m superneurons.plot memory   MEMORY.json...   -o F.pdf   bytes resident over plan steps
    python -m superneurons.plot pareto   COMPARE.json...  -o F.pdf   time against memory, by policy
    python -m superneurons.plot fidelity FIDELITY.jsonl   -o F.pdf   predicted against measured time
    python -m superneurons.plot timeline TIMELINE.json... -o F.pdf   the streams of a training step
    python -m superneurons.plot loss     REPLAY.json...   -o F.pdf   loss over training steps
    python -m superneurons.plot crossover CROSSOVER.json  -o F.pdf   policies by budget and device

Inputs are written by `simulate --memory`, `compare --json`, `superneurons_fidelity`,
`simulate --timeline`, `replay --json` and `bench/crossover.py`. The output's name says its kind:
.pdf, .png or .svg.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any

from superneurons.crossover import read_crossover
from superneurons.fidelity import LARGE_ERROR, Cell, read_fidelity
from superneurons.files import BadInput, run_main
from superneurons.plot_crossover import draw_crossover
from superneurons.plot_style import (
    COLUMN,
    GIB,
    PAGE,
    Figure,
    areas,
    in_style,
    look,
    outside_legend,
    save,
    unique,
)
from superneurons.results import Memory, Outcome, Timeline, read_memory, read_results, read_timeline

# Below plot_style, which says what to install where there is none.
from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter  # isort: skip

_PHASES = {
    "forward": ("0.8", ""),
    "backward": ("0.5", ""),
    "update": ("0.2", ""),
    "recompute": ("0.65", "xxxx"),
    "other": ("1", ""),
    "rerun": ("0.8", "////"),
    "offload": ("0.9", "\\\\\\\\"),
    "prefetch": ("0.9", "...."),
}


def draw_memory(memories: Sequence[Memory]) -> Figure:
    """Bytes resident (GiB) over plan steps: one line per plan; of a single plan by role."""
    figure = Figure(figsize=(COLUMN, 2.4))
    axes = figure.subplots()
    peak = max(max(memory.total) for memory in memories)
    if len(memories) == 1:
        memory = memories[0]
        areas(axes, range(len(memory.total)), {**memory.by_role, "workspace": memory.workspace})
        axes.set_title(f"{memory.trace}, {memory.policy}")
    for index, memory in enumerate(memories if len(memories) > 1 else []):
        line = look(index, len(memories))
        del line["marker"], line["markersize"]
        axes.step(
            range(len(memory.total)),
            [total / GIB for total in memory.total],
            where="post",
            label=memory.policy,
            **line,
        )
    traces = unique([memory.trace for memory in memories])
    if len(memories) > 1:
        axes.set_title(", ".join(traces))
        axes.set_ylim(0, peak * 1.08 / GIB)
    for budget in sorted(
        {memory.budget_bytes for memory in memories if memory.budget_bytes <= 1.05 * peak}
    ):
        axes.axhline(budget / GIB, color="0.3", linewidth=0.7, linestyle=(0, (2, 2)))
        axes.annotate(
            f"budget {budget / GIB:.2f} GiB",
            (1, budget / GIB),
            xycoords=("axes fraction", "data"),
            ha="right",
            va="bottom",
            fontsize=6,
            bbox={"facecolor": "1", "edgecolor": "none", "pad": 0.5, "alpha": 0.8},
        )
    axes.set_xlim(0, max(len(memory.total) for memory in memories))
    axes.set_xlabel("plan step")
    axes.set_ylabel("resident on the device (GiB)")
    handles, names = axes.get_legend_handles_labels()
    outside_legend(figure, handles, names, 1 if max(map(len, names)) > 24 else 2)
    return figure


def draw_pareto(outcomes: Sequence[Outcome]) -> Figure:
    """Training step (ms) against arena taken (GiB): a line per policy, a panel per trace."""
    if not outcomes:
        raise BadInput("no outcomes to draw: no policy fits any of the budgets")
    traces, policies = unique([o.trace for o in outcomes]), unique([o.policy for o in outcomes])
    columns = min(len(traces), 2)
    rows = -(-len(traces) // columns)
    many = len(policies) > 6
    width = PAGE if columns > 1 else COLUMN * (1.4 if many else 1)
    figure = Figure(figsize=(width, 2.1 * rows + 0.5))
    panels = figure.subplots(rows, columns, squeeze=False)
    for axes, trace in zip(panels.flat, traces):
        here = [o for o in outcomes if o.trace == trace]
        for index, policy in enumerate(policies):
            points = sorted(
                {(o.placed_peak_bytes / GIB, o.step_ns / 1e6) for o in here if o.policy == policy}
            )
            if points:
                axes.plot(
                    *zip(*points),
                    label=policy,
                    **look(index, len(policies)),
                    markerfacecolor="none",
                )
        axes.axhline(
            min(o.bound_ns for o in here) / 1e6,
            color="0.3",
            linewidth=0.7,
            linestyle=(0, (2, 2)),
            label="lower bound of time",
        )
        axes.set_title(trace)
        axes.set_xlabel("arena taken (GiB)")
        axes.set_ylabel("training step (ms)")
        axes.margins(0.08)
    for axes in list(panels.flat)[len(traces) :]:
        axes.set_visible(False)
    looks: dict[str, Any] = {}
    for axes in panels.flat:
        looks.update((label, handle) for handle, label in zip(*axes.get_legend_handles_labels()))
    names = [name for name in [*policies, "lower bound of time"] if name in looks]
    outside_legend(figure, [looks[name] for name in names], names, 3 if columns > 1 else 1 + many)
    return figure


def draw_fidelity(cells: Sequence[Cell]) -> Figure:
    """Predicted against measured training steps (ms); share of cells within an error (%)."""
    done = [cell for cell in cells if not cell.error]
    if not done:
        raise BadInput("no cell was measured: nothing to draw")
    policies = unique([cell.policy for cell in done])
    figure = Figure(figsize=(PAGE, 2.6))
    left, right = figure.subplots(1, 2)
    for index, policy in enumerate(policies):
        mine = [cell for cell in done if cell.policy == policy]
        line = {**look(index, len(policies)), "linestyle": "none", "markersize": 4}
        left.plot(
            [c.measured_step_ns / 1e6 for c in mine],
            [c.step_ns / 1e6 for c in mine],
            label=policy,
            markerfacecolor="none",
            **line,
        )
    times = [time / 1e6 for cell in done for time in (cell.step_ns, cell.measured_step_ns)]
    ends = [min(times) * 0.8, max(times) * 1.25]
    left.plot(ends, ends, color="0", linewidth=0.6)
    left.fill_between(
        ends,
        [end * (1 - LARGE_ERROR / 100) for end in ends],
        [end * (1 + LARGE_ERROR / 100) for end in ends],
        color="0.9",
        zorder=0,
        linewidth=0,
    )
    left.set(
        xscale="log",
        yscale="log",
        xlim=ends,
        ylim=ends,
        xlabel="measured training step (ms)",
        ylabel="predicted training step (ms)",
    )
    for axis in (left.xaxis, left.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(ScalarFormatter())
        axis.set_minor_formatter(NullFormatter())
    errors = sorted(abs(cell.error_percent) for cell in done)
    share = [100 * (i + 1) / len(errors) for i in range(len(errors))]
    right.step([0, *errors], [0, *share], where="post", color="0")
    mean = sum(errors) / len(errors)
    right.axvline(mean, color="0.3", linewidth=0.7, linestyle=(0, (2, 2)))
    right.annotate(
        f"mean {mean:.1f} %", (mean, 3), xytext=(3, 0), textcoords="offset points", fontsize=7
    )
    right.set(
        xlim=(0, max(errors[-1] * 1.05, LARGE_ERROR * 1.05)),
        ylim=(0, 102),
        xlabel="error of the prediction, either way (%)",
        ylabel="share of cells (%)",
    )
    right.axvspan(0, LARGE_ERROR, color="0.9", zorder=0, linewidth=0)
    handles, names = left.get_legend_handles_labels()
    outside_legend(figure, handles, names, 3)
    return figure


def draw_timeline(timeline: Timeline) -> Figure:
    """The streams over the training step (ms), and the bytes resident (GiB) by role below."""
    figure = Figure(figsize=(PAGE, 3.0))
    axes, below = figure.subplots(2, 1, sharex=True, gridspec_kw={"height_ratios": [1, 1.5]})
    lanes = {stream: -lane for lane, stream in enumerate(timeline.streams)}
    ranges: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for span in timeline.spans:
        kind = (
            "rerun" if span.name.endswith("(rerun)") else span.arguments.get("phase", span.stream)
        )
        ranges.setdefault((kind, span.stream), []).append(
            (span.start_us / 1e3, span.duration_us / 1e3)
        )
    for kind, stream in sorted(
        ranges, key=lambda key: list(_PHASES).index(key[0]) if key[0] in _PHASES else 99
    ):
        gray, hatch = _PHASES.get(kind, ("1", ""))
        axes.broken_barh(
            ranges[kind, stream],
            (lanes[stream] - 0.4, 0.8),
            facecolor=gray,
            edgecolor="0.1",
            linewidth=0.2,
            hatch=hatch,
            label=kind,
        )
    axes.set_yticks(list(lanes.values()), list(lanes))
    axes.set_ylim(0.5 - len(lanes), 0.5)
    axes.set_title(f"{timeline.trace}, {timeline.policy}")
    axes.grid(False)
    roles = unique([role for _, row in timeline.resident for role in row])
    areas(
        below,
        [time / 1e3 for time, _ in timeline.resident],
        {role: [row.get(role, 0) for _, row in timeline.resident] for role in roles},
    )
    for panel in (axes, below):
        panel.legend(loc="upper left", bbox_to_anchor=(1.0, 1.05))
    below.set(
        xlabel="time in the training step (ms)",
        ylabel="resident (GiB)",
        xlim=(0, timeline.step_ns / 1e6),
    )
    return figure


def draw_loss(outcomes: Sequence[Outcome]) -> Figure:
    """Loss over training steps: the reference's thin below, each replay's dots upon it."""
    replays = [outcome for outcome in outcomes if outcome.losses]
    if not replays:
        raise BadInput("no outcome has losses: would be of `replay` with native kernels")
    figure = Figure(figsize=(COLUMN, 2.6))
    axes = figure.subplots()
    names = []
    for index, outcome in enumerate(replays):
        line = look(index, len(replays))
        losses = outcome.losses or []
        steps = range(1, len(losses) + 1)
        if outcome.reference_losses:
            axes.plot(steps, outcome.reference_losses, color="0.6", linewidth=1.8)
        label = f"{outcome.policy}, {outcome.budget_bytes / (1 << 20):.3g} MiB"
        if outcome.test_images:
            label += f": {100 * (outcome.test_accuracy or 0):.1f} % of the test"
        names.append(label)
        line |= {"linewidth": 0.7, "markersize": 3}
        axes.plot(steps, losses, **line, markevery=max(1, len(losses) // 15))
    if any(outcome.reference_losses for outcome in replays):
        names.append("everything kept (reference)")
    axes.set(xlabel="training step", ylabel="loss", yscale="log")
    axes.set_title(", ".join(unique([outcome.trace for outcome in replays])))
    handles = [line for line in axes.lines if line.get_color() != "0.6"]
    handles += [line for line in axes.lines if line.get_color() == "0.6"][:1]
    outside_legend(figure, handles, names, 1)
    return figure


def _one(files: Sequence[str]) -> str:
    if len(files) != 1:
        raise BadInput(f"{len(files)} inputs (would be one)")
    return files[0]


KINDS: dict[str, Callable[[list[str]], Figure]] = {
    "memory": lambda files: draw_memory([read_memory(file) for file in files]),
    "pareto": lambda files: draw_pareto([o for file in files for o in read_results(file).outcomes]),
    "fidelity": lambda files: draw_fidelity(
        [cell for file in files for cell in read_fidelity(file)]
    ),
    "loss": lambda files: draw_loss([o for file in files for o in read_results(file).outcomes]),
    "timeline": lambda files: draw_timeline(read_timeline(_one(files))),
    "crossover": lambda files: draw_crossover(read_crossover(_one(files))),
}


def draw(kind: str, files: list[str]) -> Figure:
    """A figure of a kind in `KINDS` from result files, in the style of this module."""
    with in_style():
        return KINDS[kind](files)


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m superneurons.plot",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("kind", choices=sorted(KINDS))
    parser.add_argument("inputs", nargs="+", metavar="INPUT")
    parser.add_argument("-o", "--output", required=True, help="figure to write: .pdf, .png or .svg")
    options = parser.parse_args(arguments)
    return run_main(lambda: save(draw(options.kind, options.inputs), options.output))


if __name__ == "__main__":
    sys.exit(main())
