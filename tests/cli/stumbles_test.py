"""What a newcomer stumbled over, so that nobody does again."""

import json
import os
import pty
import subprocess
import time

import pytest
from conftest import PROGRAM, ROOT


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["replay", "{small}", "--polcy", "liveness"], "'--polcy' (did you mean --policy?"),
        (["replay", "--polcy", "liveness", "{small}"], "'--polcy' (did you mean --policy?"),
        (["plan", "{small}", "--polici=liveness"], "'--polici' (did you mean --policy?"),
        (["simulate", "{small}", "--policy", "liveness", "--budgte", "60%"], "--budget?"),
        (["simulate", "{small}", "--policy", "liveness", "extra"], "'extra'"),
    ],
)
def test_a_misspelt_option_is_named(run, small, arguments, words):
    done = run(*(a.format(small=small) for a in arguments))
    assert done.code == 2
    assert words in done.error


@pytest.mark.parametrize("command", ["simulate", "plan", "replay"])
def test_what_does_not_fit_is_json_as_well(run, small, tmp_path, command):
    file = tmp_path / "result.json"
    arguments = (command, small, "--policy", "liveness", "--budget")
    done = run(*arguments, "100KiB", "--json", file)
    assert done.code == 1
    value = json.loads(file.read_text())
    assert value["outcomes"] == []
    assert value["options"]["budget"] == "100KiB"
    assert value["error"] in done.err
    assert value["floor_bytes"] > 100 * 1024
    assert value["op"] in value["error"]
    assert value["short_bytes"] > 0
    fits = run(*arguments, value["floor_bytes"], "--json", file)
    assert fits.code == 0, fits.err
    assert len(json.loads(file.read_text())["outcomes"]) == 1


def test_a_profile_by_its_bare_file_name(run, chain, tmp_path):
    (tmp_path / "mine").write_text((ROOT / "traces/profiles/h200.json").read_text())
    arguments = ("simulate", chain, "--policy", "liveness", "--device")
    assert run(*arguments, "mine", cwd=tmp_path).code == 0
    done = run(*arguments, "h20", cwd=tmp_path)
    assert done.code == 2
    assert "did you mean 'h200'?" in done.error
    assert "there are" in done.error


def test_guards_are_no_overrun(run, small):
    done = run("replay", small, "--policy", "liveness", "--guards", "--no-reference")
    assert " of guards, which are no part of the budget" in done.out


def test_the_default_budget_of_a_host_trace_is_said(run):
    arguments = ("simulate", ROOT / "traces" / "small_cnn-b8-host.jsonl.gz", "--policy", "liveness")
    assert "note: no --budget: taking the " in run(*arguments).err
    assert "no --budget" not in run(*arguments, "--budget", "1GiB").err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["build", "small_cnn", "--batch", "9999999999999999999999"], "9999999999999999999999"),
        (["build", "small_cnn", "--batch", "0"], "not in range 1 to 2147483647"),
        (["build", "small_cnn", "--batch", "3.5"], "'3.5' is not a whole number from 1 to"),
        (["trace", "small_cnn", "--on", "host", "--seed", "-1"], "'-1' is not a whole number"),
        (["trace", "small_cnn", "--on", "host", "--seed", "1.5"], "'1.5' is not a whole number"),
    ],
)
def test_numbers_out_of_range(run, tmp_path, arguments, words):
    done = run(*arguments, "-o", tmp_path / "t.jsonl")
    assert done.code == 2
    assert words in done.error


@pytest.mark.parametrize(
    ("size", "words"),
    [
        ("12GB", "did you mean 12GiB, or 11.18GiB (12 GB)?"),
        ("500mb", "did you mean 500MiB, or 476.8MiB (500 MB)?"),
        ("12G", "did you mean 12GiB?"),
        ("12XB", '"12XB" is no size (would be like'),
    ],
)
def test_decimal_sizes_are_refused_with_what_they_may_mean(run, chain, size, words):
    done = run("simulate", chain, "--policy", "liveness", "--budget", size)
    assert done.code == 2
    assert words in done.error


@pytest.mark.parametrize("there", [True, False])
def test_an_output_that_is_a_link_is_written_through(run, tmp_path, there):
    target = tmp_path / "folder" / "target.jsonl"
    target.parent.mkdir()
    if there:
        target.write_text("old")
    link = tmp_path / "link.jsonl"
    link.symlink_to("folder/target.jsonl")
    done = run("build", "small_cnn", "-o", link)
    assert done.code == 0, done.err
    assert link.is_symlink()
    assert '"superneurons-trace"' in target.read_text()
    assert os.listdir(target.parent) == ["target.jsonl"]


def test_a_long_replay_shows_how_far_it_is(small):
    try:
        ours, theirs = pty.openpty()
    except OSError as error:
        pytest.skip(f"no terminal can be opened: {error}")
    process = subprocess.Popen(
        [PROGRAM, "replay", small, "--policy", "liveness", "--steps", "100000"],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=theirs, text=True,
    )  # fmt: skip
    shown, end = "", time.monotonic() + 60
    while "left, then" not in shown and time.monotonic() < end:
        shown += os.read(ours, 65536).decode()
    process.send_signal(2)
    process.communicate(timeout=60)
    shown += os.read(ours, 65536).decode()
    os.close(ours)
    os.close(theirs)
    assert "training step " in shown
    assert " of 100000, " in shown
    assert "note: a training step takes " in shown
    assert "about less" not in shown
    assert "superneurons: interrupted" in shown
    assert process.returncode == 130


def cudnn_trace(run, tmp_path):
    """A network whose first convolution was recorded with an algorithm that no host has."""
    file = tmp_path / "cudnn.jsonl"
    assert run("build", "small_cnn", "--batch", "1", "-o", file).code == 0
    records = [json.loads(line) for line in file.read_text().splitlines()]
    first = next(r for r in records if r.get("kind") == "Conv2dForward")
    first["choices"][0]["algorithm"] = "IMPLICIT_PRECOMP_GEMM"
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return file


def test_a_trace_of_a_gpu_is_replayed_on_the_host_by_surrogates_and_that_is_said(run, tmp_path):
    arguments = ("replay", cudnn_trace(run, tmp_path), "--policy", "liveness", "--steps", "1")
    done = run(*arguments)
    assert done.code == 0, done.err
    assert "no algorithm 'IMPLICIT_PRECOMP_GEMM' on the host" in done.err
    assert "taking --kernels verify" in done.err
    assert "equal: " in done.out
    asked = run(*arguments, "--kernels", "native")
    assert asked.code == 2
    assert "(--kernels verify replays any trace)" in asked.error


@pytest.mark.parametrize("network", ["resnet50", "vgg16", "small_cnn"])
def test_a_batch_that_no_host_takes_is_said(run, tmp_path, network):
    batch = {"small_cnn": 2147483647}.get(network, 4096)
    done = run("trace", network, "--batch", batch, "--on", "host", "-o", tmp_path / "t.jsonl")
    assert done.code == 2
    assert "more than a kernel on the host takes (below 2^31: would be of a smaller batch)" in done.error


def test_an_arena_beyond_the_memory_of_the_host_is_said_to_be_divisible(run, tmp_path):
    file = tmp_path / "large.jsonl"
    assert run("build", "vgg16", "--batch", "150000", "--device", "h200", "-o", file).code == 0
    budget = ("--policy", "liveness", "--budget", "900TiB")
    done = run("replay", file, *budget, "--kernels", "verify")
    assert done.code == 1
    assert "(--scale-bytes 1/1024 divides all sizes)" in done.error


@pytest.mark.parametrize("given", ["60,40", "60"])
def test_budgets_without_a_unit_are_said_to_be_bytes(run, chain, given):
    done = run("compare", chain, "--policies", "liveness", "--budgets", given)
    assert done.code == 1
    notes = [line for line in done.err.splitlines() if ": note: " in line]
    assert len(notes) == len(given.split(","))
    assert "--budgets 60 has no unit: taken as 60 bytes (write it with MiB or GiB, or with %)" in notes[0]


def test_an_unknown_allocator_is_told_which_there_are(run, small):
    arguments = ("simulate", small, "--policy", "liveness", "--allocator")
    assert "'foo' (there are first_fit, " in run(*arguments, "foo").error
    assert "(did you mean best_fit? there are first_fit, " in run(*arguments, "bestfit").error


def test_a_batch_that_is_not_known_is_not_shown(run, tmp_path, small):
    file = tmp_path / "t.jsonl"
    for line, shown in (('"batch":4', "batch 4, "), ('"batch":0', "")):
        file.write_text(small.read_text().replace('"batch":4', line, 1))
        for arguments in (("show", file), ("compare", file, "--policies", "liveness")):
            first = run(*arguments).out.splitlines()[0]
            assert ("batch" in first) == bool(shown)
            assert shown in first


@pytest.fixture
def files(run, chain, tmp_path):
    """One of each text form, by what it is called."""
    named = {"plan": "p.jsonl", "result": "r.json", "memory": "m.json", "timeline": "t.json"}
    paths = {name: tmp_path / file for name, file in named.items()}
    arguments = ("simulate", chain, "--policy", "liveness")
    outputs = ("--json", paths["result"], "--memory", paths["memory"])
    assert run(*arguments, *outputs, "--timeline", paths["timeline"]).code == 0
    assert run("plan", chain, "--policy", "liveness", "-o", paths["plan"]).code == 0
    return paths | {"trace": chain, "profile": ROOT / "traces" / "profiles" / "h200.json"}


CALLS = {
    "trace": ("show", "{}"),
    "plan": ("check", "{chain}", "--plan", "{}"),
    "profile": ("simulate", "{chain}", "--policy", "liveness", "--device", "{}"),
}
CALLED = {
    "trace": '"superneurons-trace", a trace',
    "plan": '"superneurons-plan", a plan',
    "profile": '"superneurons-profile", a device profile',
    "result": '"superneurons-result", a result of compare, simulate or replay',
    "memory": '"superneurons-memory", memory over plan steps',
    "timeline": "is a timeline for Perfetto",
}


@pytest.mark.parametrize("wanted", CALLS)
def test_another_file_of_ours_is_named_and_what_is_wanted(run, chain, files, wanted):
    for name, file in files.items():
        if name == wanted:
            continue
        done = run(*(a.format(file, chain=chain) for a in CALLS[wanted]))
        assert done.code == 2
        assert CALLED[name] in done.error
        words = {"profile": "a device profile"}.get(wanted, f"a {wanted}")
        assert f'(would be {words}, "format":"superneurons-{wanted}"' in done.error
