"""Every command does its job on a small trace: what it prints, writes and returns."""

import json
import os
import pty
import subprocess

import pytest
from conftest import PROGRAM, ROOT, without_paths

GOLDEN = ROOT / "tests" / "cli" / "golden"

# Regenerate with: python3 -m pytest tests/cli/commands_test.py --regenerate
GOLDEN_COMMANDS = {
    "show": ["show", "{chain}", "--ops", "--tensors"],
    "show_by_kind": ["show", "{chain}", "--by-kind"],
    "show_liveness": ["show", "{chain}", "--liveness", "--names", "4"],
    "check": ["check", "{chain}"],
    "plan_liveness": [
        *("plan", "{chain}", "--policy", "liveness", "--budget", "1MiB"),
        *("--device", "{toy}"),
    ],
    "simulate_keep_all": ["simulate", "{chain}", "--policy", "keep_all", "--device", "{toy}"],
    "simulate_offload": [
        *("simulate", "{chain}", "--policy", "liveness+offload:need=all,layers=all"),
        *("--budget", "2MiB", "--device", "{toy}"),
    ],
    "explain": [
        *("explain", "{chain}", "--policy", "liveness+offload:need=all,layers=all"),
        *("--budget", "2MiB", "--device", "{toy}", "--rows", "2"),
    ],
    "explain_tensor": [
        *("explain", "{chain}", "--policy", "liveness+offload:need=all,layers=all"),
        *("--budget", "2MiB", "--device", "{toy}", "--tensor", "y1"),
    ],
    "compare": [
        *("compare", "{chain}", "--policies", "keep_all,recorded,liveness"),
        *("--budgets", "1MiB,100%,floor", "--device", "{toy}"),
    ],
}


@pytest.fixture
def toy(tmp_path):
    """The device profile of traces/FORMAT.md, but of the chain's device."""
    text = (ROOT / "traces" / "FORMAT.md").read_text()
    start = text.index('{\n  "format":"superneurons-profile"')
    file = tmp_path / "toy.json"
    file.write_text(text[start : text.index("```", start)].replace("Toy 4000", "NVIDIA H200"))
    return file


@pytest.mark.parametrize("name", GOLDEN_COMMANDS)
def test_prints_what_it_printed(name, run, chain, toy, tmp_path, request):
    arguments = [a.format(chain=chain, toy=toy) for a in GOLDEN_COMMANDS[name]]
    done = run(*arguments)
    assert done.code == 0, done.err
    golden = GOLDEN / f"{name}.txt"
    text = without_paths(done.out, tmp_path)
    if request.config.getoption("--regenerate"):
        golden.write_text(text)
    assert text == golden.read_text()


def test_help_says_what_to_do_next(run):
    for arguments in (["--help"], ["help"]):
        done = run(*arguments)
        assert done.code == 0
        assert "What to do next" in done.out
        assert "compare" in done.out


def test_every_command_has_help_with_an_example(run):
    text = run("--help").out
    commands = text[text.index("Subcommands:") : text.index("What to do next")].split("\n")[1:]
    names = [line.split()[0] for line in commands if line.startswith("  ")]
    assert len(names) >= 12
    for name in names:
        done = run(name, "--help")
        assert done.code == 0
        assert f"Example: superneurons {name}" in done.out


def test_version(run):
    assert run("--version").out.startswith("superneurons 0.")


@pytest.mark.parametrize("what", ["networks", "policies", "devices"])
def test_lists_are_text_and_json(what, run, tmp_path):
    text, file = run(what).out, tmp_path / "list.json"
    assert run(what, "--json", file).code == 0
    listed = json.loads(file.read_text())
    assert listed["format"] == f"superneurons-{what}"
    for entry in listed[what]:
        assert entry["name"] in text
    assert json.loads(run(what, "--json", "-").out) == listed


def test_show_as_json(run, chain):
    shown = json.loads(run("show", chain, "--json", "-").out)
    assert shown["ops"] == 12
    assert shown["roles"]["activation"] == {"tensors": 4, "bytes": 4 * 65536}
    assert shown["kinds"]["Conv2dForward"]["max_workspace_bytes"] == 8192
    assert len(shown["trace_hash"]) == 16


def test_show_by_kind_as_json(run, chain):
    shown = json.loads(run("show", chain, "--by-kind", "--json", "-").out)
    rows = {row["kind"]: row for row in shown["layer_kinds"]}
    assert sum(row["ops"] for row in rows.values()) == shown["ops"]
    assert rows["CONV"]["forward_ns"] > 0
    assert "layer_kinds" not in json.loads(run("show", chain, "--json", "-").out)


def test_records_under_a_policy_where_everything_kept_does_not_fit(run, tmp_path):
    file = tmp_path / "small.jsonl"
    brief = ["--steps", "1", "--warmup", "1", "--no-choices", "-o", file]
    done = run("trace", "small_cnn", "--on", "host", "--budget", "700KiB", *brief)
    assert done.code == 0, done.err
    shown = run("show", file).out
    assert "recorded under liveness in 700 KiB, as keep_all does not fit" in shown
    done = run("trace", "small_cnn", "--on", "host", "--budget", "64KiB", *brief)
    assert done.code == 1
    assert "small_cnn-b4 does not fit 64 KiB of device memory" in done.error


def test_live_sets_as_json_are_differences(run, chain):
    shown = json.loads(run("show", chain, "--liveness", "--by", "op", "--json", "-").out)
    liveness = shown["liveness"]
    assert len(liveness["steps"]) == shown["ops"]
    live, before = set(liveness["at_start"]), None
    for step in liveness["steps"]:
        assert before in (None, step["in_bytes"])
        assert step["peak_bytes"] >= max(step["in_bytes"], step["out_bytes"])
        assert not live & set(step["born"]) and set(step["died"]) <= live
        live = (live - set(step["died"])) | set(step["born"])
        before = step["out_bytes"]
    assert live == set(liveness["at_start"])  # what one training step leaves to the next
    assert max(step["peak_bytes"] for step in liveness["steps"]) == liveness["peak_bytes"]


def test_lowerings_and_orders_are_options_of_build(run, tmp_path):
    made = {}
    for options in (["--paper"], ["--lowering", "caffe"], ["--order", "route"], []):
        file = tmp_path / "t.jsonl"
        assert run("build", "small_cnn", *options, "-o", file).code == 0
        made[tuple(options)] = json.loads(run("show", file, "--json", "-").out)
    assert made["--paper",]["lowering"] == "paper"
    assert made["--lowering", "caffe"]["trace"] == "small_cnn-b4-caffe"
    assert made["--order", "route"]["trace"] == "small_cnn-b4-route"
    assert len({shown["trace_hash"] for shown in made.values()}) == 4


def test_a_framework_is_a_model_of_traces_of_its_own_lowering(run, small, tmp_path):
    assert "models of documented strategies, not those programs" in run("policies").out
    file = tmp_path / "caffe.jsonl"
    run("build", "small_cnn", "--lowering", "caffe", "-o", file)
    assert run("simulate", file, "--policy", "caffe").code == 0
    refused = run("simulate", small, "--policy", "caffe")
    assert refused.code == 2
    assert "superneurons build NETWORK --lowering caffe" in refused.error


def test_reads_standard_input(run, chain):
    assert "12 ops" in run("check", "-", stdin=chain.read_text()).out


def test_plan_then_check_then_simulate(run, chain, tmp_path):
    plan, result = tmp_path / "p.jsonl", tmp_path / "r.json"
    done = run("plan", chain, "--policy", "liveness", "--budget", "1MiB", "-o", plan)
    assert (done.code, done.out) == (0, "")
    assert "lawful plan" in run("check", chain, "--plan", plan).out
    assert run("simulate", chain, "--plan", plan, "--json", result).code == 0
    outcome = json.loads(result.read_text())["outcomes"][0]
    assert outcome["policy"] == "liveness"
    assert outcome["budget_bytes"] == 1 << 20
    assert outcome["step_ns"] == outcome["compute_ns"] + sum(outcome["stall_ns"].values())


def test_results_name_hash_and_all_options(run, chain):
    result = json.loads(
        run("simulate", chain, "--policy", "liveness", "--budget", "1MiB", "--json", "-").out
    )
    assert result["format"] == "superneurons-result"
    assert result["options"]["policy"] == "liveness"
    assert result["options"]["budget"] == "1MiB"
    assert result["options"]["allocator"] == "first_fit"
    assert result["options"]["command"].startswith("superneurons simulate ")
    shown = json.loads(run("show", chain, "--json", "-").out)
    assert result["outcomes"][0]["trace_hash"] == shown["trace_hash"]


def test_explain_gives_sentences(run, chain):
    text = run("plan", chain, "--policy", "liveness", "--explain").out
    assert '"r":"reason"' in text


def test_an_unlawful_plan_is_a_no_with_the_law(run, chain, tmp_path):
    plan = tmp_path / "p.jsonl"
    run("plan", chain, "--policy", "liveness", "-o", plan)
    lines = [line for line in plan.read_text().splitlines() if line != '{"run":3}']
    lines[-1] = lines[-1].replace(f'"steps":{len(lines) - 1}', f'"steps":{len(lines) - 2}')
    plan.write_text("\n".join(lines) + "\n")
    done = run("check", chain, "--plan", plan, "--json", tmp_path / "c.json")
    assert done.code == 1
    assert done.error.startswith(f"{plan}: ")
    found = json.loads((tmp_path / "c.json").read_text())["plan"]
    assert found["lawful"] is False
    assert found["law"] in done.error


def test_timeline_and_memory_files(run, chain, tmp_path):
    timeline, memory = tmp_path / "t.json", tmp_path / "m.json"
    done = run("simulate", chain, "--policy", "liveness", "--timeline", timeline, "--memory", memory)
    assert done.code == 0
    assert json.loads(timeline.read_text())["traceEvents"]
    columns = json.loads(memory.read_text())
    assert max(columns["total"]) > 4 * 65536


def test_compare_has_bounds_cells_and_refusals(run, chain, tmp_path):
    file = tmp_path / "c.json"
    done = run("compare", chain, "--budgets", "100%,1KiB,floor", "--json", file)
    assert done.code == 0
    result = json.loads(file.read_text())
    bounds = {bound["name"]: bound for bound in result["bounds"]}
    assert set(bounds) >= {"keep_all", "recorded", "liveness", "largest_working_set", "time"}
    assert all(row["step_ns"] >= row["bound_ns"] for row in result["outcomes"])
    tiny = [row for row in result["infeasible"] if row["budget_bytes"] == 1024]
    assert tiny
    for row in tiny:
        assert row["smallest_budget_bytes"] >= bounds["largest_working_set"]["bytes"]
        assert row["floor_op"] in chain.read_text()
    floors = {row["smallest_budget_bytes"] for row in tiny}
    assert min(floors) in {row["budget_bytes"] for row in result["outcomes"]}
    assert "no policy fits" in done.out
    assert "winner: " in done.out


def test_traces_of_one_name_are_told_apart_by_their_files(run, chain, tmp_path):
    other = tmp_path / "other.jsonl"
    other.write_text(chain.read_text())
    done = run("compare", chain, other, "--policies", "liveness", "--budgets", "100%")
    assert done.code == 0, done.err
    headings = [line for line in done.out.splitlines() if " ops, " in line]
    assert [f" ({file}): " in line for file, line in zip((chain, other), headings)] == [True] * 2
    alone = run("compare", chain, "--policies", "liveness", "--budgets", "100%")
    assert str(chain) not in alone.out


def test_compare_where_nothing_fits_is_a_no(run, chain):
    done = run("compare", chain, "--budgets", "1KiB")
    assert done.code == 1
    assert "--budgets floor" in done.error


def test_build_then_replay_on_the_host(run, small, tmp_path):
    file = tmp_path / "r.json"
    done = run("replay", small, "--policy", "liveness", "--json", file)
    assert done.code == 0, done.err
    outcome = json.loads(file.read_text())["outcomes"][0]
    assert outcome["equal"] is True
    assert outcome["measured_peak_bytes"] == outcome["placed_peak_bytes"]
    assert done.out.count("predicted") == 2  # the column, and the sentence on time


def test_replay_of_another_devices_trace_refuses_to_predict_time(run, small):
    result = json.loads(run("replay", small, "--policy", "liveness", "--json", "-").out)
    assert "NVIDIA H200" in result["outcomes"][0]["time_refused"]
    assert result["outcomes"][0]["equal"] is True


def test_replay_with_verifying_kernels_compares_no_time(run, chain):
    done = run("replay", chain, "--policy", "liveness", "--kernels", "verify")
    assert done.code == 0, done.err
    assert "no time is predicted: the kernels only verify values" in done.out


def test_stress_and_guards(run, small):
    assert run("replay", small, "--policy", "liveness", "--stress", "--guards").code == 0


def test_scaled_replay_of_a_recorded_trace(run):
    trace = "traces/alexnet-b128.jsonl.gz"
    done = run("replay", trace, "--policy", "liveness", "--scale-bytes", "1/4096", "--steps", "2")
    assert done.code == 0, done.err
    assert "equal: " in done.out


def test_trace_on_the_host_names_no_files_of_this_machine(run, tmp_path):
    file = tmp_path / "host.jsonl.gz"
    done = run("trace", "small_cnn", "--on", "host", "--steps", "2", "--warmup", "1", "-o", file)
    assert done.code == 0, done.err
    shown = json.loads(run("show", file, "--json", "-").out)
    assert shown["device"] == "host"
    assert str(tmp_path) not in shown["origin"]
    assert shown["facts"]["durations"] == "exact"


def test_calibrate_on_the_host_gives_a_profile_that_others_take(run, chain, tmp_path):
    file = tmp_path / "here.json"
    assert run("calibrate", "--on", "host", "--name", "here", "-o", file).code == 0
    done = run("simulate", chain, "--policy", "liveness", "--device", file)
    assert done.code == 0
    assert "note: ops take as long as they took on NVIDIA H200" in done.err


def test_same_call_same_bytes(run, chain):
    call = ["compare", chain, "--budgets", "100%,60%", "--json", "-"]
    assert run(*call).out == run(*call).out


def test_no_progress_where_there_is_no_terminal(run, chain):
    assert run("compare", chain).err == ""


def test_progress_on_a_terminal_after_a_second(chain):
    try:
        ours, theirs = pty.openpty()
    except OSError as error:
        pytest.skip(f"no terminal can be opened here: {error}")
    policy = "exec:sleep 1.1; python3 python/examples/keep_most.py"
    process = subprocess.Popen(
        [PROGRAM, "compare", chain, "--policies", policy, "--budgets", "1MiB,2MiB"],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=theirs, text=True,
    )  # fmt: skip
    out, _ = process.communicate(timeout=60)
    shown = os.read(ours, 65536).decode()
    os.close(ours)
    os.close(theirs)
    assert process.returncode == 0, shown
    assert "chain: exec:" in shown
    assert shown.endswith("\r\033[K")
    assert "\033" not in out


def test_a_policy_program_in_a_comparison(run, chain):
    policy = "exec:python3 python/examples/keep_most.py"
    done = run("compare", chain, "--policies", f"liveness,{policy}", "--budgets", "1MiB")
    assert done.code == 0, done.err
    assert "winner: " in done.out


def test_commas_part_policies_but_not_their_options(run, chain):
    policies = "liveness+offload:layers=all,need=all,keep_all"
    arguments = ["compare", chain, "--budgets", "1MiB", "--policies"]
    result = json.loads(run(*arguments, policies, "--json", "-").out)
    names = [row["policy"] for row in result["outcomes"]]
    assert names == ["liveness+offload:layers=all,need=all", "keep_all"]
    command = "exec:python3 python/examples/keep_most.py a,b"
    result = json.loads(run(*arguments, f"liveness,{command}", "--json", "-").out)
    assert [row["policy"] for row in result["outcomes"]] == ["liveness", command]
    assert "no policy is named" in run(*arguments, "liveness,").error


def test_a_closed_pipe_is_no_crash():
    script = f"'{PROGRAM}' show traces/alexnet-b128.jsonl.gz --ops --tensors | true"
    done = subprocess.run(
        ["sh", "-c", script], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.stderr == ""
