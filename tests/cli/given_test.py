"""What is given is used, or refused: nothing is passed over in silence."""

import json

import pytest


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["simulate", "{small}", "--policy", "liveness", "--device", ""], "--device is empty"),
        (["simulate", "{small}", "--policy", ""], "--policy is empty"),
        (["simulate", "", "--policy", "liveness"], "trace is empty"),
        (["build", "", "-o", "{out}"], "network is empty"),
        (["build", "small_cnn", "--device", "", "-o", "{out}"], "--device is empty"),
        (
            ["build", "small_cnn", "--lowering", "tensorflow", "--update", "end", "-o", "{out}"],
            "--update end does not go with --lowering tensorflow",
        ),
        (
            ["simulate", "{small}", "--policy", "liveness+offload:lookahead=3layers,lookahead=2"],
            "option lookahead is given twice",
        ),
        (
            ["simulate", "{small}", "--policy", "liveness", "--host-budget", "60%"],
            '--host-budget: "60%" is no size',
        ),
        (
            ["simulate", "{small}", "--policy", "liveness", "--clock", "program"],
            "--clock program needs to know host_times",
        ),
        (["show", "{small}", "--liveness", "--roles", "activation,"], "no role ''"),
        (["compare", "{small}", "--budgets", "60%,,floor"], "--budgets: a budget is empty"),
        (["compare", "{small}", "--policies", "offload:layers=zzz"], "bad layers 'zzz'"),
        (["compare", "{small}", "--policies", "liveness,workspace:of=500%"], "bad of '500%'"),
        (["compare", "{small}", "--policies", "balance:tries=no"], "bad tries 'no'"),
        (["compare", "{small}", "--policies", "mix:tries=0"], "bad tries '0'"),
        (
            ["plan", "{small}", "--policy", "balance:tries=99999999999", "-o", "{out}"],
            "a number of plans to try, 1 to 2147483647",
        ),
        (["compare", "{small}", "--allocator", "x"], "unknown allocator 'x' (there are first_fit"),
        (["compare", "{small}", "missing.jsonl"], "missing.jsonl: cannot be opened: No such file"),
        (["compare", "{small}", "."], ".: cannot be read: Is a directory"),
        (["compare", "-", "-"], "standard input is one file (- is given twice)"),
        (["compare", "{small}", "--policies", "liveness+"], "a pass is missing after +"),
        (["compare", "{small}", "--budgets", "1001%"], "'1001%' is not above 0% and up to 1000%"),
        (["compare", "{small}", "--budgets", "0%"], "'0%' is not above 0% and up to 1000%"),
        (["compare", "{small}", "--budgets", "%"], "'%' is not a percentage such as 60%"),
        (
            ["fit", "resnet:6,32,*,6", "--vary", "batch", "--policy", "liveness"],
            "* goes with --vary depth",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_before_any_work(run, small, tmp_path, arguments, words):
    done = run(*(a.format(small=small, out=tmp_path / "out.jsonl") for a in arguments))
    assert (done.code, done.out) == (2, "")
    assert words in done.error
    assert not (tmp_path / "out.jsonl").exists()


def test_floor_of_a_policy_that_the_trace_does_not_suit_says_why(run, small):
    done = run("compare", small, "--policies", "caffe", "--budgets", "floor")
    assert done.code == 2
    assert "needs a trace lowered as caffe" in done.error


@pytest.mark.parametrize("lacking", ["flops_per_ns", "memory_bytes_per_ns"])
def test_a_profile_without_rates_estimates_nothing(run, tmp_path, lacking):
    profile = json.loads(open("traces/profiles/titan-xp.json").read())
    profile[lacking] = 0
    file = tmp_path / "lame.json"
    file.write_text(json.dumps(profile))
    fit = ("fit", "small_cnn", "--vary", "batch", "--policy", "liveness", "--budget", "4MiB")
    for command in (("build", "small_cnn", "-o", tmp_path / "t.jsonl"), fit):
        done = run(*command, "--device", file)
        assert done.code == 2
        assert "has no flops_per_ns or memory_bytes_per_ns" in done.error


def test_the_same_trace_has_the_same_hash_however_it_was_asked_for(run, tmp_path):
    for name, more in (("a", ()), ("b", ("--batch", "4", "--device", "h200"))):
        assert run("build", "small_cnn", *more, "-o", tmp_path / f"{name}.jsonl").code == 0
    a, b = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    assert a.read_text() == b.read_text()
    plan = tmp_path / "p.jsonl"
    assert run("plan", a, "--policy", "liveness", "-o", plan).code == 0
    assert run("simulate", b, "--plan", plan).code == 0


def test_a_plan_over_a_smaller_budget_is_json_as_well(run, small, tmp_path):
    plan, file = tmp_path / "p.jsonl", tmp_path / "r.json"
    assert run("plan", small, "--policy", "liveness", "-o", plan).code == 0
    done = run("simulate", small, "--plan", plan, "--budget", "1B", "--json", file)
    assert done.code == 1
    assert "taken as" not in done.err
    assert json.loads(file.read_text())["error"] in done.err
