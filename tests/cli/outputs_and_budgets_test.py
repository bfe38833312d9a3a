"""Outputs destroy nothing that is read; budgets are looked at before any work."""

import pytest


@pytest.mark.parametrize("option", ["--json", "--memory", "--timeline"])
def test_an_output_that_would_overwrite_the_input_is_refused(run, chain, option):
    before = chain.read_bytes()
    done = run("simulate", chain, "--policy", "liveness", option, chain)
    assert done.code == 2
    assert "would overwrite another file of this command" in done.error
    assert chain.read_bytes() == before


def test_two_outputs_into_one_file_are_refused(run, chain, tmp_path):
    out = tmp_path / "out.json"
    done = run("simulate", chain, "--policy", "liveness", "--json", out, "--memory", out)
    assert done.code == 2
    assert not out.exists()


@pytest.mark.parametrize("budget", ["", "0x64%", "flor", "-5GiB", "2000%"])
def test_a_bad_budget_is_refused_before_any_work(run, chain, tmp_path, budget):
    out = tmp_path / "out.json"
    done = run("compare", chain, "--budgets", "100%", "--budgets", budget, "--json", out)
    assert done.code == 2
    assert done.out == ""
    assert not out.exists()


def test_an_allocator_beside_a_plan_is_refused(run, chain, tmp_path):
    plan = tmp_path / "plan.jsonl"
    assert run("plan", chain, "--policy", "liveness", "-o", plan).code == 0
    done = run("simulate", chain, "--plan", plan, "--allocator", "best_fit")
    assert done.code == 2
    assert "does not go with a plan made for first_fit" in done.error


def test_a_plan_over_its_budget_does_not_fit(run, chain, tmp_path):
    plan = tmp_path / "plan.jsonl"
    assert run("plan", chain, "--policy", "liveness", "-o", plan).code == 0
    done = run("simulate", chain, "--plan", plan, "--budget", "100KiB")
    assert done.code == 1
    assert done.error.startswith("does not fit: plan step ")
    assert "over the budget of 102400 B" in done.error


def test_where_no_budget_would_help_none_is_blamed(run, chain, tmp_path):
    out = tmp_path / "out.json"
    done = run("compare", chain, "--policies", "caffe", "--budgets", "100%", "--json", out)
    assert done.code == 2
    assert "no policy has a plan, whatever the budget: policy caffe is a model" in done.error
    assert "--budgets floor" not in done.error
    assert out.exists()


def test_floor_is_a_budget_of_every_command(run, chain):
    for command in (["plan"], ["simulate"], ["replay", "--kernels", "verify"]):
        done = run(command[0], chain, "--policy", "liveness", "--budget", "floor", *command[1:])
        assert done.code == 0, done.error


def test_sizes_and_budgets_are_divided_alike(run, chain, tmp_path):
    whole, part = tmp_path / "whole.jsonl", tmp_path / "part.jsonl"
    asked = ("plan", chain, "--policy", "liveness", "--budget", "2MiB", "--host-budget", "1MiB")
    assert run(*asked, "-o", whole).code == 0
    assert run(*asked, "-o", part, "--scale-bytes", "1/4").code == 0
    assert '"device":2097152,"host":1048576' in whole.read_text().replace(" ", "")
    assert '"device":524288,"host":262144' in part.read_text().replace(" ", "")
