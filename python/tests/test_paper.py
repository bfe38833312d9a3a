"""The paper's tables and figures: what ours are today stands in tests/golden/."""

import json
import os

import pytest

from superneurons import paper, paper_data, paper_fit
from superneurons.files import BadInput
from superneurons.paper_lab import Lab, Table, columns

CHEAP = [name for name, item in paper.ITEMS.items() if item.cheap and name != "scale"]
GOLDEN = [name for name in paper.ITEMS if name != "scale"]


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    try:
        return Lab(tmp_path_factory.mktemp("lab"))
    except RuntimeError as error:
        pytest.skip(str(error))


@pytest.fixture
def dry():
    """A lab in which nothing fits."""
    return Lab(".", dry=True)


def cells_of(text):
    """The rows of a golden text: lists of cells, the header first."""
    lines = text.splitlines()
    begin = next(i for i, line in enumerate(lines[3:], 3) if not line) + 1
    rows = []
    for line in lines[begin:]:
        if not line:
            break
        rows.append([cell for cell in line.split("  ") if cell.strip()])
    return [[cell.strip() for cell in row] for row in rows]


@pytest.mark.parametrize("name", CHEAP)
def test_ours_are_those_of_the_golden_file(name, lab, root):
    text = paper.make(name, lab).text()
    golden = (root / "tests" / "golden" / f"{name}.txt").read_text()
    command = f"PYTHONPATH=python python3 -m superneurons.paper all {name} --golden tests/golden"
    assert text == golden, f"to accept what changed: {command}"


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_files_have_the_rows_and_the_printed_values(name, dry, root):
    table = paper.make(name, dry)
    golden = cells_of((root / "tests" / "golden" / f"{name}.txt").read_text())
    empty = cells_of(table.text())
    assert golden[0] == empty[0]
    assert [row[0] for row in golden] == [row[0] for row in empty]
    for i, column in enumerate(table.columns):
        if column.whose == "paper":
            assert [row[i] for row in golden] == [row[i] for row in empty], column.name
    ours = [i for i, column in enumerate(table.columns) if column.whose == "ours"]
    assert any(row[i] != "-" for row in golden[1:] for i in ours)


def test_models_are_those_of_the_registry(lab):
    registered = lab.call("policies")["models"]
    ours = [(s.policy, s.options) for s in paper_fit.MODELS.values()]
    assert ours == [(m["name"], ("--lowering", m["lowering"])) for m in registered]


def golden_cells(root, name):
    """The rows of a golden file by their first cell."""
    return {row[0]: row for row in cells_of((root / "tests" / "golden" / f"{name}.txt").read_text())}


def test_table_4_is_found_again_where_that_is_quick(lab, root):
    """All of it takes minutes: here the two models that search among small networks, and whether
    the depth of superneurons still fits (not whether the next does not)."""
    golden = golden_cells(root, "table4")
    for name in ("caffe", "torch"):
        found = paper_fit.largest(lab, paper_fit.DEEP, paper_fit.MODELS[name])
        assert golden[name][1:3] == ([f"{found['value']}", f"{found['depth']}"] if found else ["-"] * 2)
    n3 = golden["superneurons"][1]
    trace = lab.build(f"resnet:6,32,{n3},6", 16, "--paper", "--device", paper_fit.K40)
    options = ("--device", paper_fit.K40)
    assert lab.simulate(trace, paper_fit.OURS, *options, budget=paper_fit.BUDGET)


def test_the_deepest_that_trained_stand_beside_table_4(tmp_path):
    file = tmp_path / "scale.jsonl"
    row = {"batch": 16, "measured_images_per_s": 9.74, "measured_peak_bytes": 12 << 30}
    row |= {"host_bytes": 1 << 30, "policy": "p", "network": "resnet:6,32,1289,6"}
    others = [row | {"network": "resnet50"}, row | {"batch": 1}]
    file.write_text("\n".join(map(json.dumps, [row, *others])))
    assert [depth for depth, _ in paper_fit.deeper(file)] == [4001]
    assert "depth 4001: 9.74 images/s, arena 12.00 GiB, host 1.0 GiB; p" in "\n".join(
        paper_fit.measured_depths(file)
    )


def test_an_answer_is_asked_for_once(lab, monkeypatch):
    assert lab.once("networks") is lab.once("networks")


def test_resnet_50_with_look_ahead_in_the_order_of_the_release(lab):
    """3 x 98 + 101.53 + 2 x 24.5 MiB: the stem's output is there for pool1 while bn0 goes back."""
    (line,) = paper.make("table1", lab).results
    assert line.endswith("444.531 with --order release")


def test_table_1_counts_as_the_paper_does(lab):
    table = paper.make("table1", lab)
    assert table.column("runs", "ours") == table.column("runs", "paper")
    for ours, printed in zip(table.column("peak", "ours"), table.column("peak", "paper")):
        assert ours == pytest.approx(printed, abs=0.0005) or printed == 401


def test_every_step_of_figure_10_is_within_the_width_of_a_line(lab):
    table = paper.make("figure10", lab)
    assert len(table.rows) == 46
    for panel in "abc":
        ours, printed = (table.column(f"{panel} MiB", whose) for whose in ("ours", "paper"))
        assert ours == pytest.approx(printed, abs=0.7)
        assert table.column(f"{panel} n", "ours") == table.column(f"{panel} n", "paper")


def test_figure_10_has_46_steps_in_each_panel():
    assert all(len(paper_data.figure10(panel)) == 46 for panel in "abc")


@pytest.mark.parametrize("name", list(paper.ITEMS))
def test_each_is_drawn_even_where_nothing_of_ours_fits(name, dry):
    pytest.importorskip("matplotlib")
    from superneurons import paper_draw

    table = paper.make(name, dry)
    if table.rows and name in paper_draw.DRAWINGS:
        assert paper.draw(table).axes


def test_a_table_aligns_and_says_how_it_is_made():
    table = Table(
        "t", "Title", ["by hand"], columns(["name", "x|ours|.1f"]), [["a", 1.25], ["bc", None]]
    )
    assert table.text().splitlines()[-3:] == ["name  x (ours)", "a          1.2", "bc           -"]
    assert "superneurons.paper text t" in table.text()


def test_what_the_program_refuses_is_none_and_what_it_does_not_take_is_an_error(lab):
    trace = lab.build("small_cnn", 4)
    assert lab.simulate(trace, "keep_all", budget=1024) is None
    assert lab.simulate(trace, "keep_all")["recompute_runs"] == 0
    with pytest.raises(RuntimeError, match="no_such"):
        lab.simulate(trace, "no_such_policy")


def test_measured_rows_are_those_that_ran(tmp_path):
    file = tmp_path / "scale.jsonl"
    assert paper.paper_fit.measured(file) == []
    good = {"network": "alexnet", "batch": 1792, "measured_images_per_s": 12.5}
    file.write_text(json.dumps({"network": "vgg16", "error": "no"}) + "\n" + json.dumps(good))
    assert paper.paper_fit.measured(file) == [good]


def test_unknown_names_are_explained(capsys):
    with pytest.raises(BadInput, match="figure10"):
        paper.make("figure9")
    assert paper.main(["text", "table9"]) == 2
    assert "no table or figure 'table9'" in capsys.readouterr().err


def test_the_list_names_all(capsys):
    assert paper.main(["list"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in shown] == list(paper.ITEMS)


def test_all_writes_text_and_drawings(lab, tmp_path):
    pytest.importorskip("matplotlib")
    out = tmp_path / "out"
    command = ["all", "table1", "--golden", str(out), "--figures", str(out)]
    assert paper.main(command) == 0
    assert sorted(os.listdir(out)) == ["table1.pdf", "table1.png", "table1.txt"]
