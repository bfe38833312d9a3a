"""Who wins under which budget on which device, and why; bad files are refused."""

import json

import pytest

from superneurons.crossover import FORMAT, drawn_policies, explain, parse, read_crossover
from superneurons.files import BadInput


def row(policy, budget, step):
    return {"policy": policy, "budget_bytes": budget, "step_ns": step}


def device(name, link, outcomes):
    kinds = {
        "ReluForward": {"ns": 100, "forward_ns": 100, "forward_made_bytes": 5000},
        "ReluBackward": {"ns": 300, "forward_ns": 0, "forward_made_bytes": 0},
    }
    return {
        "name": name,
        "device": name.upper(),
        "times": "scaled from X",
        "offload_bytes_per_ns": link,
        "prefetch_bytes_per_ns": link,
        "liveness_bytes": 1000,
        "kinds": kinds,
        "outcomes": outcomes,
    }


def text(**changes):
    outcomes = [
        row("liveness_offload", 1000, 400),
        row("recompute_offload", 1000, 400),
        row("liveness_offload", 800, 400),
        row("recompute_offload", 800, 450),
        row("liveness_offload", 600, 900),
        row("recompute_offload", 600, 500),
    ]
    value = {
        "format": FORMAT,
        "trace": "toy",
        "policies": ["liveness_offload", "recompute_offload"],
        "devices": [device("fast", 2.0, outcomes), device("slow", 8.0, outcomes[:4])],
    }
    return json.dumps(value | changes)


def test_the_winner_and_where_recomputing_takes_over():
    fast, slow = parse(text()).devices
    assert [fast.winner(budget) for budget in fast.budgets] == [
        "any",
        "liveness_offload",
        "recompute_offload",
    ]
    assert fast.compute == 400
    assert fast.hidden == 200, "out at 2 B/ns during 100 ns of forward"
    assert fast.remake_rate("ReluForward") == 50
    assert slow.hidden == 800
    said = explain(parse(text()))
    assert "fast: 100 % any, 80 % liveness_offload, 60 % recompute_offload" in said
    assert "recompute first wins from 60 % down" in said
    assert "never more than 2 % behind" in said


def test_superneurons_and_its_ablations_are_the_rivals_where_they_were_run():
    outcomes = [
        row("superneurons", 1000, 400),
        row("superneurons_no_recompute", 1000, 400),
        row("superneurons_no_offload", 1000, 410),
        row("superneurons", 900, 420),
        row("superneurons_no_recompute", 900, 500),
        row("liveness_offload", 900, 550),
        row("recompute_offload", 900, 430),
    ]
    policies = sorted({each["policy"] for each in outcomes})
    both = parse(text(policies=policies, devices=[device("fast", 2.0, outcomes)]))
    said = explain(both)
    assert "recompute first wins from 90 % down: 0.0 ms (superneurons)" in said
    assert "without transfers it fits down to 100 %" in said
    assert "recompute_offload" not in drawn_policies(both)
    assert drawn_policies(both)[0] == "liveness_offload"
    assert drawn_policies(parse(text())) == ["liveness_offload", "recompute_offload"]


@pytest.mark.parametrize(
    "damaged", ["", "[]", "{}", text(format="other"), text(devices=[{"name": "x"}])]
)
def test_other_files_are_refused(damaged, tmp_path):
    file = tmp_path / "x.json"
    file.write_text(damaged)
    with pytest.raises(BadInput):
        read_crossover(str(file))


def test_the_figure_has_a_panel_per_device(tmp_path):
    pytest.importorskip("matplotlib")
    from superneurons import plot

    file = tmp_path / "x.json"
    file.write_text(text())
    figure = plot.draw("crossover", [str(file)])
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ["fast (scaled), link 2 GB/s", "slow (scaled), link 8 GB/s"]
    plot.save(figure, str(tmp_path / "x.pdf"))
    assert (tmp_path / "x.pdf").stat().st_size > 1000
