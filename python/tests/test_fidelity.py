"""The fidelity table: worst first, with the figures that it is judged by."""

import json

import pytest

from superneurons.fidelity import format_fidelity, main, read_fidelity
from superneurons.files import BadInput


def row(policy="liveness", budget="80", predicted=1100, measured=1000, **values):
    return {
        "trace": "toy",
        "trace_hash": "0" * 16,
        "policy": policy,
        "budget": budget,
        "budget_bytes": 1 << 20,
        "step_ns": predicted,
        "measured_step_ns": measured,
        "error_percent": 0,
        "placed_peak_bytes": 1 << 19,
        "measured_peak_bytes": 1 << 19,
        "fastest_ns": 990,
        "slowest_ns": 1010,
        "equal": True,
        "difference": "",
        "stall_ns": {"prefetch": 220, "gap": 10},
        "wall_s": 0.1,
        **values,
    }


def write(path, *rows):
    path.write_text("".join(json.dumps(each) + "\n" for each in rows))
    return str(path)


def test_a_plan_that_two_cells_share_is_replayed_once_and_that_is_said(tmp_path):
    same = write(tmp_path / "same.jsonl", row("keep_all"), row("recorded", same_as="keep_all 80"))
    text = format_fidelity(read_fidelity(same))
    assert "2 measured (1 plans replayed, the others are the same), 0 without" in text


def test_the_table_is_sorted_by_error_and_summed_up(tmp_path):
    file = write(
        tmp_path / "f.jsonl",
        row("keep_all", predicted=1020),
        row(predicted=880),
        row("offload"),
        row("recompute", equal=False, predicted=1000, measured_peak_bytes=3),
        {
            key: value
            for key, value in {**row("recorded"), "error": "does|not fit"}.items()
            if not key.startswith("m")
        },
    )
    text = format_fidelity(read_fidelity(file))
    assert "mean |error|: 6.00 %" in text  # (2 + 12 + 10 + 0) / 4
    assert "keep_all, worst |error|: 2.00 %" in text
    assert "equal to the bit: 3 of 4 (75 %)" in text
    assert "to the byte: 3 of 4" in text
    assert "cells over 8 %: 2" in text
    assert "4 measured, 1 without" in text
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line[:1] == "|"
    ]
    assert [line[1] for line in lines[2:6]] == ["liveness", "offload", "keep_all", "recompute"]
    assert lines[2] == [
        "toy",
        "liveness",
        "80 % (1 MiB)",
        "512 KiB",
        "880 ns",
        "1 us",
        "-12.0 %",
        "2.0 %",
        "prefetch 25 %",
        "yes",
    ]
    assert lines[5][-1] == "NO"
    assert "does/not fit" in text


def test_of_a_cell_measured_twice_the_last_counts(tmp_path):
    cells = read_fidelity(write(tmp_path / "f.jsonl", row(predicted=1), row(predicted=2)))
    assert [cell.step_ns for cell in cells] == [2]


def test_a_bad_row_is_named_by_its_line(tmp_path, capsys):
    file = tmp_path / "f.jsonl"
    file.write_text(json.dumps(row()) + '\n\n{"trace":')
    assert main([str(file)]) == 2
    assert f"superneurons: {file}:3: is not JSON" in capsys.readouterr().err
    with pytest.raises(BadInput, match=':1: lacks "policy"'):
        read_fidelity(write(file, {"trace": "toy"}))
    with pytest.raises(BadInput, match="is not above 0"):
        read_fidelity(write(file, row(measured=0)))


def test_nothing_measured_is_a_table_too(tmp_path):
    assert "0 measured, 0 without" in format_fidelity(read_fidelity(write(tmp_path / "f.jsonl")))
