"""Result files: read, written back, asked; errors name file and what is wrong."""

import json
import re

import pytest

from superneurons import results
from superneurons.files import BadInput


def outcome(**values):
    row = {
        "policy": "liveness",
        "trace": "toy",
        "trace_hash": "0" * 16,
        "allocator": "first_fit",
        "budget_bytes": 100,
        "live_peak_bytes": 80,
        "placed_peak_bytes": 90,
        "scope_peak_bytes": {"activation": 40},
        "host_bytes": 0,
        "step_ns": 1000,
        "bound_ns": 900,
        "compute_ns": 950,
        "offload_bytes": 0,
        "prefetch_bytes": 0,
        "recompute_runs": 0,
        "recompute_ns": 0,
        "stall_ns": {"gap": 50},
    }
    row.update(values)
    return row


def write(path, *rows, **extra):
    value = {
        "format": "superneurons-result",
        "version": "0.1",
        "options": {"command": "compare é"},
        "outcomes": list(rows),
        **extra,
    }
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return str(path)


def test_what_was_read_is_written_back_to_the_byte(tmp_path):
    file = write(
        tmp_path / "r.json",
        outcome(),
        outcome(measured_step_ns=5, measured_peak_bytes=6, outside_bytes=7, equal=True),
        outcome(slower_choices=1, slower_choices_ns=7, workspaces=[{"op": "conv", "lost_ns": 7}]),
        outcome(measured_step_ns=5, equal=True, time_refused="another GPU"),
        outcome(losses=[2.5, None], reference_losses=[2.5, None]),
        outcome(data="digits", test_images=8, test_correct=6, test_accuracy=0.75),
        outcome(scaled_from="NVIDIA H200"),
        infeasible=[{"policy": "keep_all", "smallest_budget_bytes": 5}],
        bounds=[{"name": "time", "step_ns": 9}],
    )
    results.write_results(results.read_results(file), str(tmp_path / "again.json"))
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "r.json").read_bytes()


def test_the_example_of_the_format_document_is_read_and_written_back(root, tmp_path):
    text = (root / "traces" / "FORMAT.md").read_text()
    [block] = re.findall(r"```json\n(.*?)```", text, re.S)
    (tmp_path / "r.json").write_text(block)
    assert results.format_results(results.read_results(str(tmp_path / "r.json"))) == block


def test_what_the_program_compares_is_written_back_to_the_byte(root, program, tmp_path):
    file = tmp_path / "compare.json"
    program("compare", root / "traces" / "alexnet-b128.jsonl.gz", "--json", file)
    read = results.read_results(str(file))
    assert results.format_results(read).encode() == file.read_bytes()
    assert results.best(read).policy in {outcome.policy for outcome in read.outcomes}


def test_a_refusal_is_kept_and_said(tmp_path):
    refusal = {"error": "does not fit", "floor_bytes": 7, "short_bytes": 3, "op": "conv1"}
    file = write(tmp_path / "r.json", **refusal)
    read = results.read_results(file)
    assert read.refusal == refusal
    assert results.format_results(read).encode() == (tmp_path / "r.json").read_bytes()
    with pytest.raises(BadInput, match="has no outcomes: does not fit"):
        results.best(read)


def test_lists_of_a_comparison_hold_objects(tmp_path):
    with pytest.raises(BadInput, match='"bounds" is no array of objects'):
        results.read_results(write(tmp_path / "r.json", outcome(), bounds=[3]))


def test_unknown_keys_are_ignored(tmp_path):
    read = results.read_results(write(tmp_path / "r.json", outcome(of_a_newer_version=3), more=[1]))
    assert read.outcomes[0].stall_ns == {"gap": 50}


def test_best_is_the_fastest_under_the_tightest_budget(tmp_path, capsys):
    file = write(
        tmp_path / "r.json",
        outcome(policy="fast", budget_bytes=200, step_ns=1),
        outcome(policy="slow", step_ns=30),
        outcome(policy="a+b:n=2", step_ns=20),
        outcome(policy="later", step_ns=20),
    )
    assert results.main(["best", file]) == 0
    assert capsys.readouterr().out == "a+b:n=2\n"


@pytest.mark.parametrize(
    "change, message",
    [
        ({"step_ns": 1.5}, '"step_ns" of outcome 0 is 1.5 (would be a whole number)'),
        ({"step_ns": True}, '"step_ns" of outcome 0 is true (would be a whole number)'),
        ({"losses": [1, "x"]}, '"losses" of outcome 0 is [1, "x"] (would be an array of numbers)'),
        ({"policy": None}, '"policy" of outcome 0 is null (would be a text)'),
        (
            {"stall_ns": {"gap": "x"}},
            '"stall_ns" of outcome 0 is {"gap": "x"} (would be an object of whole numbers)',
        ),
    ],
)
def test_a_wrong_value_is_named(tmp_path, change, message):
    file = write(tmp_path / "r.json", outcome(**change))
    with pytest.raises(BadInput) as error:
        results.read_results(file)
    assert str(error.value) == f"{file}: {message}"


def test_a_missing_key_is_named(tmp_path):
    row = outcome()
    del row["bound_ns"]
    with pytest.raises(BadInput, match='outcome 0 lacks "bound_ns"'):
        results.read_results(write(tmp_path / "r.json", row))


def test_errors_go_to_standard_error_with_exit_code_2(tmp_path, capsys):
    file = tmp_path / "r.json"
    file.write_text('{"format":"superneurons-result",\n"version":0.1}')
    assert results.main(["best", str(file)]) == 2
    assert capsys.readouterr().err == (
        f"superneurons: {file}:1: the version is 0.1 "
        '(would be a result of compare, simulate or replay, "format":"superneurons-result" and "version":"0.1")\n'
    )
    file.write_text('{"format":\n,}')
    assert results.main(["best", str(file)]) == 2
    assert f"{file}: is not JSON: line 2, column 1" in capsys.readouterr().err
    assert results.main(["best", str(tmp_path / "none.json")]) == 2
    assert "cannot be read (No such file or directory)" in capsys.readouterr().err
    assert results.main(["best", write(file)]) == 2
    assert "no policy fits" in capsys.readouterr().err
    file.write_text('{"format":"superneurons-result","version":"1.0","outcomes":[]}')
    assert results.main(["best", str(file)]) == 2
    assert "version 1.0 is newer" in capsys.readouterr().err
