"""Figures: drawn from each kind of input, the same bytes each time, no file left by errors."""

import json
import os

import pytest

pytest.importorskip("matplotlib", reason="matplotlib is not installed")

from superneurons import plot  # noqa: E402
from test_crossover import text as crossover_text  # noqa: E402
from test_fidelity import row  # noqa: E402
from test_fidelity import write as write_fidelity  # noqa: E402
from test_results import outcome  # noqa: E402
from test_results import write as write_results  # noqa: E402


def memory(path, policy="liveness"):
    path.write_text(
        json.dumps(
            {
                "format": "superneurons-memory",
                "version": "0.1",
                "trace": "toy",
                "trace_hash": "0" * 16,
                "policy": policy,
                "allocator": "first_fit",
                "budget_bytes": 3 << 30,
                "kind": ["run", "free", "run"],
                "name": ["a", "t", "b"],
                "total": [2 << 30, 1 << 30, 3 << 30],
                "workspace": [0, 0, 1 << 30],
                "by_role": {"activation": [2 << 30, 1 << 30, 2 << 30]},
            }
        )
    )
    return str(path)


def timeline(path):
    threads = [
        {"ph": "M", "pid": 1, "tid": i, "name": "thread_name", "args": {"name": name}}
        for i, name in enumerate(["compute", "offload", "prefetch"])
    ]
    spans = [
        {"ph": "X", "pid": 1, "tid": tid, "name": name, "ts": ts, "dur": 50.0, "args": arguments}
        for tid, name, ts, arguments in [
            (0, "conv", 0.0, {"phase": "forward"}),
            (1, "offload t", 50.0, {}),
            (0, "conv (rerun)", 90.0, {"phase": "forward"}),
        ]
    ]
    counters = [
        {
            "ph": "C",
            "pid": 1,
            "name": "resident bytes",
            "ts": ts,
            "args": {"activation": 1 << 30, "saved": 5},
        }
        for ts in (0.0, 90.0)
    ]
    path.write_text(
        json.dumps(
            {
                "otherData": {"trace": "toy", "policy": "offload", "step_ns": 140000},
                "traceEvents": threads + spans + counters,
            }
        )
    )
    return str(path)


def write_crossover(path):
    path.write_text(crossover_text())
    return str(path)


def inputs(kind, folder):
    return {
        "memory": lambda: [memory(folder / "a.json", "keep_all"), memory(folder / "b.json")],
        "pareto": lambda: [
            write_results(folder / "c.json", outcome(), outcome(policy="b", trace="other"))
        ],
        "fidelity": lambda: [write_fidelity(folder / "f.jsonl", row(), row("keep_all"))],
        "loss": lambda: [
            write_results(
                folder / "l.json",
                outcome(losses=[2.5, None, 0.5], reference_losses=[2.5, None, 0.5]),
                outcome(losses=[2.5, 1.0], data="d", test_images=3, test_correct=2,
                        test_accuracy=2 / 3),
            )
        ],
        "timeline": lambda: [timeline(folder / "t.json")],
        "crossover": lambda: [write_crossover(folder / "x.json")],
    }[kind]()


@pytest.mark.parametrize("kind", sorted(plot.KINDS))
def test_a_figure_is_the_same_bytes_each_time_and_has_no_date(kind, tmp_path):
    files = inputs(kind, tmp_path)
    for name in ("one.pdf", "two.pdf"):
        assert plot.main([kind, *files, "-o", str(tmp_path / name)]) == 0
    one = (tmp_path / "one.pdf").read_bytes()
    assert one.startswith(b"%PDF") and one == (tmp_path / "two.pdf").read_bytes()
    assert b"CreationDate" not in one and b"ModDate" not in one


def test_one_plan_is_drawn_by_role(tmp_path):
    figure = plot.draw("memory", [memory(tmp_path / "a.json")])
    _, names = figure.axes[0].get_legend_handles_labels()
    assert names == ["activation", "workspace"]


def test_axes_name_their_units(tmp_path):
    for kind in plot.KINDS:
        for axes in plot.draw(kind, inputs(kind, tmp_path)).axes:
            for label in filter(None, (axes.get_xlabel(), axes.get_ylabel())):
                assert label in {"plan step", "training step", "loss"} or label.endswith(("(GiB)", "(ms)", "(%)"))


def test_as_many_policies_as_there_are_differ_in_colour_and_more_in_colour_and_marker():
    colours = {plot.look(index, 13)["color"] for index in range(13)}
    assert len(colours) == 13
    looks = [plot.look(index, 60) for index in range(60)]
    assert len({(each["color"], each["marker"]) for each in looks}) == 60


def test_names_of_commands_are_cut_in_the_middle_to_fit_a_legend(tmp_path):
    name = "exec:python3 /home/somebody/a/folder/far/down/keep_most.py"
    files = [memory(tmp_path / "a.json", name), memory(tmp_path / "b.json")]
    (legend,) = plot.draw("memory", files).legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names[1] == "liveness"
    assert len(names[0]) == 44
    assert names[0].startswith("exec:python3 ") and names[0].endswith("keep_most.py")


def test_png_is_drawn_too(tmp_path):
    assert plot.main(["memory", memory(tmp_path / "a.json"), "-o", str(tmp_path / "f.png")]) == 0
    assert (tmp_path / "f.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["memory", "{m}", "-o", "{out}.gif"], "is no figure's name"),
        (["memory", "{m}", "-o", "{out}/no/such/folder.pdf"], "cannot be written"),
        (["pareto", "{m}", "-o", "{out}.pdf"], 'the format is "superneurons-memory"'),
        (["timeline", "{m}", "-o", "{out}.pdf"], "would be a timeline of `simulate --timeline`"),
        (["fidelity", "{m}", "-o", "{out}.pdf"], "would be rows of superneurons_fidelity"),
        (["crossover", "{m}", "-o", "{out}.pdf"], "would be a result of bench/crossover.py"),
        (["loss", "{m}", "-o", "{out}.pdf"], 'the format is "superneurons-memory"'),
        (["timeline", "{m}", "{m}", "-o", "{out}.pdf"], "2 inputs"),
    ],
)
def test_bad_calls_are_refused_and_leave_no_file(arguments, message, tmp_path, capsys):
    file = memory(tmp_path / "m.json")
    call = [argument.format(m=file, out=tmp_path / "out") for argument in arguments]
    assert plot.main(call) == 2
    assert message in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["m.json"]


def test_columns_of_different_lengths_are_refused(tmp_path, capsys):
    file = tmp_path / "m.json"
    value = json.loads(open(memory(file)).read())
    file.write_text(json.dumps({**value, "total": [1]}))
    assert plot.main(["memory", str(file), "-o", str(tmp_path / "f.pdf")]) == 2
    assert "columns of different lengths" in capsys.readouterr().err
