"""Draws what bench/crossover.py writes: a panel per device, a line per policy."""

from __future__ import annotations

from typing import Any

from superneurons.crossover import Crossover, drawn_policies
from superneurons.plot_style import PAGE, Figure, look, outside_legend


def draw_crossover(crossover: Crossover) -> Figure:
    """Training step over its time bound against the budget: a panel per device, a line a policy."""
    columns = min(3, len(crossover.devices))
    rows = -(-len(crossover.devices) // columns)
    figure = Figure(figsize=(PAGE, 1.9 * rows + 0.4))
    panels = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    policies = drawn_policies(crossover)
    handles: dict[str, Any] = {}
    for axes, device in zip(panels.flat, crossover.devices):
        hides = 100 * (1 - device.hidden / device.liveness)
        handles["what the link moves behind compute"] = axes.axvspan(
            hides, 102, facecolor="0.9", zorder=0
        )
        for index, policy in enumerate(policies):
            points = sorted(
                (
                    100 * row["budget_bytes"] / device.liveness,
                    100 * row["step_ns"] / device.compute,
                )
                for row in device.outcomes
                if row["policy"] == policy
            )
            if points:
                (handles[policy],) = axes.plot(
                    *zip(*points), **look(index, len(policies)), markerfacecolor="none"
                )
        scaled = "scaled" if device.times.startswith("scaled") else "measured"
        axes.set_title(f"{device.name} ({scaled}), link {device.out:.0f} GB/s")
    for axes in list(panels.flat)[len(crossover.devices) :]:
        axes.set_visible(False)
    for axes in panels[-1]:
        axes.set_xlabel("budget, of the liveness peak (%)")
    for axes in panels[:, 0]:
        axes.set_ylabel("step, of compute alone (%)")
    panels[0, 0].set_xlim(None, 102)
    names = [name for name in (*policies, *handles) if name in handles]
    names = list(dict.fromkeys(names))
    outside_legend(figure, [handles[name] for name in names], names, 3)
    return figure
