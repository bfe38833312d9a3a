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
    assert f"batch {batch} is the largest found that liveness fits" in done.out
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


def planned(run, tmp_path, network, value, policy, budget):
    """What build and plan say of one batch: the exit code, and the outcome if there is one."""
    trace, file = tmp_path / f"{value}.jsonl", tmp_path / f"{value}.json"
    assert run("build", network, "--batch", value, "-o", trace).code == 0
    done = run("plan", trace, "--policy", policy, "--budget", budget, "-o", "/dev/null",
               "--json", file)  # fmt: skip
    return done.code, (json.loads(file.read_text())["outcomes"] or [None])[0]


# Budgets at which the policy's plan for the budget itself does not fit, but another one does, and
# at which what fits is not monotone.
@pytest.mark.parametrize(
    ("network", "policy", "budget"),
    [
        ("small_cnn", "liveness_offload", "3581600B"),
        ("small_cnn", "recompute_offload", "3300001B"),
        ("resnet:1,1,1,1", "superneurons_no_cache", "160MiB"),
    ],
)
def test_fit_answers_what_plan_answers(network, policy, budget, run, tmp_path):
    done, result = fit(run, tmp_path, "fit", network, "--vary", "batch", "--policy", policy,
                       "--budget", budget)  # fmt: skip
    assert done.code == 0, done.err
    batch = result["value"]
    code, outcome = planned(run, tmp_path, network, batch, policy, budget)
    assert code == 0
    for key in ("placed_peak_bytes", "host_bytes", "step_ns", "trace_hash"):
        assert outcome[key] == result[key], key
    for more in range(1, 5):
        assert planned(run, tmp_path, network, batch + more, policy, budget)[0] == 1
        [entry] = [each for each in result["tried"] if each["value"] == batch + more]
        assert entry["final"] and not entry["fits"]
    assert not result["exact"]
    seen = {entry["value"] for entry in result["tried"] if entry["final"]}
    untried = next(value for value in range(batch + 1, batch + 99) if value not in seen)
    assert f"other larger ones, such as {untried}, were not tried in full" in done.out


def test_one_image_fits_from_the_floor_on(run, tmp_path):
    arguments = ("--vary", "batch", "--policy", "recompute_offload", "--budget")
    _, nothing = fit(run, tmp_path, "fit", "resnet:1,1,1,1", *arguments, "1KiB")
    floor = int(re.search(r"even batch 1 needs .* \((\d+) B\)", nothing["error"])[1])
    done, result = fit(run, tmp_path, "fit", "resnet:1,1,1,1", *arguments, f"{floor}B")
    assert (done.code, result["value"]) == (0, 1), done.err
    done = run("fit", "resnet:1,1,1,1", *arguments, f"{floor - 1024}B")
    assert "even batch 1 needs" in done.error and f"({floor} B)" in done.error


# One op of batch 2 needs 192.2 KiB; where the budget knows no bounds, the search ends at its limit.
@pytest.mark.parametrize(
    ("policy", "budget", "value"), [("superneurons", "160KiB", 1), ("liveness", "100TiB", 1 << 20)]
)
def test_it_is_exact_where_nothing_larger_can_fit(policy, budget, value, run, tmp_path):
    done, result = fit(run, tmp_path, *SMALL, "--policy", policy, "--budget", budget)
    assert result["exact"] and result["value"] == value
    assert f"batch {value} is the largest that {policy} fits" in done.out


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
    assert "images/s predicted for NVIDIA H200" in done.out
    assert "measured on this machine's CPU: " in done.out


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
        (("fit", "resnet:1,1,junk,1", "--vary", "depth", "--policy", "liveness"), "'junk'"),
        (("fit", "resnet:1,1,-7,1", "--vary", "depth", "--policy", "liveness"), "'-7'"),
        (("fit", "resnet:1,1,,1", "--vary", "depth", "--policy", "liveness"), "''"),
        ((*SMALL, "--batch", "4", "--policy", "liveness"), "--vary batch looks for"),
        ((*SMALL, "--policy", "liveness", "--budget", "60%"), "networks of many sizes"),
        ((*SMALL, "--policy", "liveness", "--on", "host", "--rate", "0"), "learns nothing"),
        ((*SMALL, "--policy", "livenes"), "did you mean liveness"),
        (("fit", "small_cn", "--vary", "batch", "--policy", "liveness"), "small_cnn"),
        (("fit", "small_cnn", "--vary", "width", "--policy", "liveness"), "depth"),
    ],
)
def test_a_wrong_call_is_one_line_and_2(arguments, hint, run):
    done = run(*arguments)
    assert done.code == 2
    assert hint in done.error
