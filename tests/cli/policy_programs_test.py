"""Policies that are programs, beside others in one comparison, and the one of the examples."""

import json
import re

import pytest
from conftest import ROOT

KEEP_MOST = "exec:python3 python/examples/keep_most.py"


def compared(run, tmp_path, trace, *policies, budgets="1MiB"):
    """The call, and the JSON that it wrote."""
    file = tmp_path / "compared.json"
    done = run("compare", trace, "--policies", *policies, "--budgets", budgets, "--json", file)
    return done, json.loads(file.read_text())


def test_one_that_fails_leaves_the_others_their_rows(run, chain, tmp_path):
    failing = "exec:echo no idea >&2; exit 3"
    done, result = compared(run, tmp_path, chain, "liveness", failing, "keep_all")
    assert done.code == 2
    assert f"{failing}  no plan: failed with exit status 3 (it says: no idea)\n" in done.out
    assert "winner: " in done.out
    assert "1 of 3 cells have no plan because a command failed; the first: " in done.error
    assert [row["policy"] for row in result["outcomes"]] == ["liveness", "keep_all"]
    (row,) = result["infeasible"]
    assert (row["policy"], row["failed"]) == (failing, True)
    assert row["reason"] == "failed with exit status 3 (it says: no idea)"


def test_where_only_programs_are_asked_and_fail_there_is_json_as_well(run, chain, tmp_path):
    done, result = compared(run, tmp_path, chain, "exec:false", budgets="1MiB,2MiB")
    assert done.code == 2
    assert result["outcomes"] == []
    assert [row["failed"] for row in result["infeasible"]] == [True, True]
    assert result["bounds"]


def test_an_unlawful_plan_is_a_row_and_exit_code_1(run, chain, tmp_path):
    plan = tmp_path / "p.jsonl"
    assert run("plan", chain, "--policy", "liveness", "-o", plan).code == 0
    text = plan.read_text()
    plan.write_text(text.replace('{"run":2}\n', "").replace('"steps":25', '"steps":24'))
    done, result = compared(run, tmp_path, chain, "liveness", f"exec:cat '{plan}'")
    assert done.code == 1
    assert "made an unlawful plan" in result["infeasible"][0]["reason"]
    assert [row["policy"] for row in result["outcomes"]] == ["liveness"]


def test_one_whose_plan_does_not_fit_says_what_it_needs(run, chain, tmp_path):
    done, result = compared(run, tmp_path, chain, "liveness", KEEP_MOST, budgets="300KiB")
    assert done.code == 1
    row = result["infeasible"][1]
    assert row["policy"] == KEEP_MOST
    assert "failed" not in row
    assert f"{KEEP_MOST}  does not fit: needs " in done.out
    done, result = compared(
        run, tmp_path, chain, KEEP_MOST, budgets=str(row["smallest_budget_bytes"])
    )
    assert done.code == 0, done.err


def test_its_error_names_the_op_that_sets_what_it_needs(run, chain):
    done = run("plan", chain, "--policy", KEEP_MOST, "--budget", "300KiB")
    assert done.code == 1
    found = re.search(r"smallest feasible budget: .*, (\d+) B, set by (\S+)\)", done.error)
    assert found, done.error
    assert f'"{found[2]}"' in chain.read_text()
    assert run("plan", chain, "--policy", KEEP_MOST, "--budget", found[1]).code == 0


def test_several_in_one_list(run, chain, tmp_path):
    commas = f"{KEEP_MOST} a,b"
    timed = KEEP_MOST.replace("exec:", "exec,timeout=50:")
    quoted = f"{KEEP_MOST} 'x,exec:y'"
    policies = f"liveness,{commas},{timed},{quoted}"
    done, result = compared(run, tmp_path, chain, policies)
    assert done.code == 0, done.err
    names = [row["policy"] for row in result["outcomes"]]
    assert names == ["liveness", commas, timed, quoted]


def test_a_policy_behind_one_is_taken_for_its_words_and_the_row_says_so(run, chain, tmp_path):
    done, _ = compared(run, tmp_path, chain, "exec:./no_such_program,liveness")
    assert done.code == 2
    assert "a command takes the rest of a list, with its commas: name it last" in done.out


@pytest.mark.parametrize("policy", ["exec:", "exec,timeout=never:cat"])
def test_one_that_is_no_command_is_refused_before_any_work(run, chain, policy):
    done = run("compare", chain, "--policies", f"liveness,{policy}")
    assert (done.code, done.out) == (2, "")
    assert "write exec:COMMAND" in done.error


def test_of_programs_alone_the_default_budgets_are_without_the_floor(run, chain, tmp_path):
    file = tmp_path / "r.json"
    done = run("compare", chain, "--policies", KEEP_MOST, "--json", file)
    assert done.code == 0, done.err
    assert "note: budget floor is left out: of commands it is not known" in done.err
    assert len({row["budget_bytes"] for row in json.loads(file.read_text())["outcomes"]}) >= 1
    done = run("compare", chain, "--policies", KEEP_MOST, "--budgets", "floor")
    assert done.code == 2
    assert "the floor of commands is not known" in done.error


def new_input_each_step(role="input"):
    """Two training steps share no input: its storage is another in each, which no op touches."""
    header = {"r": "header", "format": "superneurons-trace", "version": "0.1", "name": "new_input"}
    header["capabilities"] = dict.fromkeys(["accesses", "frees", "durations"], "exact")
    names = ["w", "x.old", "x.new", "y"]
    roles = ["parameter", role, role, "activation"]
    tensors = [
        {"r": "tensor", "id": i, "name": name, "bytes": 1024, "role": roles[i]}
        for i, name in enumerate(names)
    ]
    ops = [
        {"name": "load", "kind": "copy", "reads": [], "writes": [2]},
        {"name": "forward", "kind": "mm", "reads": [0, 2], "writes": [3]},
        {"name": "update", "kind": "add", "phase": "update", "reads": [0, 3], "writes": [0]},
    ]
    ops = [{"r": "op", "id": i, **op, "choices": [{"ns": 100}]} for i, op in enumerate(ops)]
    carries = [{"r": "carry", "start": 0}, {"r": "carry", "start": 1, "end": 2}]
    end = {"r": "end", "tensors": 4, "ops": 3, "carry": 2, "bytes": 4096}
    return "".join(json.dumps(record) + "\n" for record in [header, *tensors, *ops, *carries, end])


@pytest.mark.parametrize("role", ["input", "optimizer_state"])
def test_the_example_is_lawful_where_the_input_is_new_in_each_step(run, tmp_path, role):
    trace = tmp_path / "t.jsonl"
    trace.write_text(new_input_each_step(role))
    done, result = compared(run, tmp_path, trace, "liveness", KEEP_MOST)
    assert done.code == 0, done.err
    assert [row["policy"] for row in result["outcomes"]] == ["liveness", KEEP_MOST]


@pytest.mark.parametrize("name", ["unet-b16", "resnet50-accumulation-b4x64"])
def test_the_example_is_lawful_for_pytorch(run, tmp_path, name):
    trace = ROOT / "traces" / "pytorch" / f"{name}.jsonl.gz"
    done = run("plan", trace, "--policy", KEEP_MOST, "-o", tmp_path / "p.jsonl")
    assert done.code == 0, done.err


def test_the_checker_says_what_to_free_of_a_carry_that_no_op_touches(run, tmp_path):
    trace, plan = tmp_path / "t.jsonl", tmp_path / "p.jsonl"
    trace.write_text(new_input_each_step("optimizer_state"))
    assert run("plan", trace, "--policy", KEEP_MOST, "-o", plan).code == 0
    text = plan.read_text()
    assert '{"free":1}\n{"run":0}\n' in text
    text = text.replace('{"free":1}\n', "").replace('"steps":5', '"steps":4')
    plan.write_text(text)
    done = run("check", trace, "--plan", plan)
    assert done.code == 1
    assert "plan step 0, op load, tensor x.new: x.new takes a home that x.old has not left" in done.error
    assert "would free x.old before" in done.error
