"""fit finds the largest batch or depth that places, says what stops the next, and trains it."""

import json
import re

import pytest

SMALL = ("fit", "small_cnn", "--vary", "batch", "--device", "h200")


def fit(run, tmp_path, *arguments):
    result = tmp_path / "fit.json"
    done = run(*arguments, "--json", result)
    return done, json.loads(result.read_text()) if result.exists() else None


def test_the_largest_batch_fits_and_the_next_does_not(run, tmp_path):
    done, result = fit(run, tmp_path, *SMALL, "--policy", "liveness", "--budget", "4MiB")
    assert done.code == 0, done.err
    batch = result["value"]
    assert batch > 1
    assert f"batch {batch} is the largest" in done.out
    assert f"batch {batch + 1}: policy liveness: does not fit" in done.out
    assert result["placed_peak_bytes"] <= 4 << 20
    tried = {entry["value"]: entry for entry in result["tried"]}
    assert tried[batch]["fits"]
    assert not tried[batch + 1]["fits"]
    assert tried[batch + 1]["short_by_bytes"] > 0
    # The commands that a person would check it with agree.
    for value, code in ((batch, 0), (batch + 1, 1)):
        trace = tmp_path / f"{value}.jsonl"
        assert run("build", "small_cnn", "--batch", value, "-o", trace).code == 0
        planned = run("plan", trace, "--policy", "liveness", "--budget", "4MiB", "-o", "/dev/null")
        assert planned.code == code, planned.err


def test_more_memory_fits_more(run, tmp_path):
    values = []
    for budget in ("4MiB", "8MiB"):
        _, result = fit(run, tmp_path, *SMALL, "--policy", "liveness", "--budget", budget)
        values.append(result["value"])
    assert values[1] > values[0]


def test_updates_as_gradients_arrive_go_deeper(run, tmp_path):
    depths = []
    for update in ("end", "arrive"):
        _, result = fit(
            *(run, tmp_path, "fit", "resnet:1,1,*,1", "--vary", "depth", "--batch", "1"),
            *("--policy", "liveness_offload", "--budget", "400MiB", "--update", update),
        )
        assert result["depth"] == 3 * (3 + result["value"]) + 2
        depths.append(result["depth"])
    assert depths[1] > depths[0]


def test_what_never_fits_says_what_sets_the_floor(run):
    done = run(*SMALL, "--policy", "liveness", "--budget", "64KiB")
    assert done.code == 1
    assert re.search(r"even batch 1 needs .* set by op \S+", done.error), done.error


def test_found_is_confirmed_by_training_it(run, tmp_path):
    done, result = fit(
        *(run, tmp_path, *SMALL, "--policy", "liveness_offload", "--budget", "1MiB"),
        *("--on", "host", "--steps", "6", "--rate", "0.05"),
    )
    assert done.code == 0, done.err
    losses = result["measured"]["losses"]
    assert len(losses) == 6
    assert losses[-1] < losses[0]
    assert result["measured"]["peak_bytes"] == result["placed_peak_bytes"]
    assert "measured: " in done.out


def test_a_loss_that_does_not_fall_is_no(run):
    done = run(
        *(*SMALL, "--policy", "liveness", "--budget", "1MiB"),
        *("--on", "host", "--steps", "4", "--rate", "1000"),
    )
    assert done.code == 1
    assert "the loss " in done.error


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("fit", "small_cnn", "--vary", "depth", "--policy", "liveness"), "resnet:n1,n2,*,n4"),
        (("fit", "resnet:1,1,*", "--vary", "depth", "--policy", "liveness"), "resnet:n1,n2,*,n4"),
        (("fit", "resnet:1,x,*,1", "--vary", "depth", "--policy", "liveness"), "each at least 1"),
        ((*SMALL, "--batch", "4", "--policy", "liveness"), "--vary batch looks for"),
        ((*SMALL, "--policy", "liveness", "--budget", "60%"), "60%"),
        ((*SMALL, "--policy", "livenes"), "did you mean liveness"),
        (("fit", "small_cn", "--vary", "batch", "--policy", "liveness"), "small_cnn"),
        (("fit", "small_cnn", "--vary", "width", "--policy", "liveness"), "depth"),
    ],
)
def test_a_wrong_call_is_one_line_and_2(arguments, hint, run):
    done = run(*arguments)
    assert done.code == 2
    assert hint in done.error
