"""Wrong input and wrong calls: one clear line, the right exit code, no crash, no partial file.

Runs under a build with sanitizers too (see conftest.py).
"""

import gzip
import json
import os
import re
import subprocess
import time

import pytest
from conftest import PROGRAM, ROOT, chain_lines

COMMANDS_ON_TRACES = [
    ["show"],
    ["check"],
    ["plan", "--policy", "liveness"],
    ["simulate", "--policy", "liveness"],
    ["explain", "--policy", "liveness"],
    ["compare"],
    ["replay", "--policy", "liveness"],
]


def edited(number, **changes):
    """The chain's text with fields of the record on that line (1-based) changed."""
    lines = chain_lines()
    lines[number - 1] = json.dumps(json.loads(lines[number - 1]) | changes)
    return "\n".join(lines) + "\n"


def line_of(kind, index=0):
    """The line, from 1, of the record `index` of that kind in the chain."""
    lines = [i for i, line in enumerate(chain_lines(), 1) if json.loads(line)["r"] == kind]
    return lines[index]


TENSOR, OP, CARRY, END = line_of("tensor", 1), line_of("op", 1), line_of("carry"), line_of("end")

# name: (text, line that the error names, words that it says)
DAMAGED = {
    "empty_file": ("", 0, "header|empty"),
    "blank_lines": ("\n\n", 0, "header"),
    "no_json": ("hello\n", 1, ""),
    "another_format": (edited(1, format="superneurons-plan"), 1, "superneurons-trace"),
    "newer_version": (edited(1, version="1.0"), 1, "version"),
    "no_version": (edited(1, version=None), 1, "version"),
    "negative_size": (edited(TENSOR, bytes=-1), TENSOR, "bytes"),
    "size_of_zero": (edited(TENSOR, bytes=0), 0, "bytes|size"),
    "size_overflows": (edited(TENSOR, bytes=2**64), TENSOR, "bytes"),
    "sizes_overflow_together": (edited(TENSOR, bytes=2**62 - 1), 0, ""),
    "size_is_broken": (edited(TENSOR, bytes=1.5), TENSOR, "bytes"),
    "duplicate_tensor_id": (edited(TENSOR, id=0), TENSOR, "second tensor 0"),
    "duplicate_op_id": (edited(OP, id=0), OP, "second op 0"),
    "duplicate_name": (edited(TENSOR, name="y0"), 0, "y0"),
    "unknown_tensor": (edited(OP, reads=[99]), OP, "99"),
    "negative_tensor": (edited(OP, reads=[-1]), OP, ""),
    "access_outside": (edited(OP, reads=[[0, 0, 2**40]]), 0, ""),
    "use_before_write": (edited(OP, reads=[11]), 0, "y4|g3|g4|dw|before"),
    "no_choice": (edited(OP, choices=[]), 0, "choice"),
    "negative_duration": (edited(OP, choices=[{"ns": -5}]), OP, "ns"),
    "overflowing_duration": (edited(OP, choices=[{"ns": 2**70}]), OP, "ns"),
    "unknown_role": (edited(TENSOR, role="ghost"), TENSOR, "ghost|role"),
    "carry_of_nothing": (edited(CARRY, start=1000), CARRY, ""),
    "wrong_totals": (edited(END, ops=11), END, "ops|11|12"),
    "cut_off": ("\n".join(chain_lines()[: OP - 1]) + "\n", 0, "end"),
    "nan_duration": (edited(OP, choices=[{"ns": float("nan")}]), OP, ""),
    "infinite_duration": (edited(OP, choices=[{"ns": float("inf")}]), OP, ""),
    "deep_nesting": ("[" * 100_000 + "\n", 1, ""),
    "binary": ("\x00\x01\x02\n", 1, ""),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_trace_is_refused_with_file_and_line(name, run, tmp_path):
    text, line, words = DAMAGED[name]
    file = tmp_path / "bad.jsonl"
    file.write_text(text)
    done = run("show", file)
    assert done.code == 2
    assert done.out == ""
    assert done.error.startswith(f"{file}:"), done.error
    if line:
        assert done.error.startswith(f"{file}:{line}: "), done.error
    assert re.search(words, done.error), done.error


@pytest.mark.parametrize("command", COMMANDS_ON_TRACES, ids=lambda c: c[0])
def test_every_command_refuses_it_alike(command, run, tmp_path):
    file = tmp_path / "bad.jsonl"
    file.write_text(edited(TENSOR, bytes=-1))
    done = run(command[0], file, *command[1:])
    assert (done.code, done.out) == (2, "")
    assert done.error.startswith(f"{file}:{TENSOR}: ")


def test_truncated_gzip(run, tmp_path):
    whole = (ROOT / "traces" / "resnet50-b64.jsonl.gz").read_bytes()
    file = tmp_path / "cut.jsonl.gz"
    file.write_bytes(whole[: len(whole) // 2])
    done = run("show", file)
    assert done.code == 2
    assert re.match(rf"{file}:\d+: .*cut off", done.error), done.error


def test_gzip_with_damage_or_none_at_all(run, tmp_path):
    file = tmp_path / "bad.jsonl.gz"
    whole = bytearray(gzip.compress("\n".join(chain_lines()).encode()))
    whole[40:60] = b"\xff" * 20
    file.write_bytes(whole)
    assert run("show", file).code == 2
    file.write_text("\n".join(chain_lines()))
    assert "is not gzip" in run("show", file).error


def test_a_line_of_a_gigabyte_is_refused_before_it_is_read():
    process = subprocess.Popen(
        [PROGRAM, "show", "-"], stdin=subprocess.PIPE, stderr=subprocess.PIPE
    )
    sent = 0
    try:
        process.stdin.write(b'{"r":"header","name":"')
        while sent < 10**9:
            process.stdin.write(b"a" * (1 << 20))
            sent += 1 << 20
        process.stdin.close()
    except BrokenPipeError:
        pass
    _, error = process.communicate(timeout=60) if not process.stdin.closed else (
        None,
        process.stderr.read(),
    )  # fmt: skip
    assert process.wait(timeout=60) == 2
    assert sent < 10**8, "it read on"
    assert error.decode().startswith("superneurons: -:1: "), error


def test_a_file_that_is_not_there_or_a_folder(run, tmp_path):
    done = run("show", tmp_path / "none.jsonl")
    assert done.code == 2
    assert done.error.startswith(f"{tmp_path}/none.jsonl: ")
    assert run("show", tmp_path).code == 2


def test_a_plan_for_another_trace(run, chain, small, tmp_path):
    plan = tmp_path / "p.jsonl"
    run("plan", chain, "--policy", "liveness", "-o", plan)
    for command in ("check", "simulate", "replay"):
        done = run(command, small, "--plan", plan)
        assert done.code == 2
        assert "was made for trace" in done.error


def test_a_damaged_plan_names_its_line(run, chain, tmp_path):
    plan = tmp_path / "p.jsonl"
    run("plan", chain, "--policy", "liveness", "-o", plan)
    lines = plan.read_text().splitlines()
    for damage in ('{"run":-1}', '{"walk":1}', '{"run":99999999999}', "{}", '{"free":"x"}'):
        plan.write_text("\n".join([lines[0], damage, *lines[2:]]) + "\n")
        done = run("check", chain, "--plan", plan)
        assert done.code == 2
        assert done.error.startswith(f"{plan}:2: "), done.error


def test_a_damaged_profile(run, chain, tmp_path):
    file = tmp_path / "p.json"
    for text in ("", "{}", "[1", '{"format":"superneurons-profile","version":"9"}'):
        file.write_text(text)
        done = run("simulate", chain, "--policy", "liveness", "--device", file)
        assert done.code == 2
        assert done.error.startswith(f"{file}:"), done.error


def test_budget_below_the_floor_says_the_smallest_and_who_sets_it(run, chain):
    done = run("plan", chain, "--policy", "liveness", "--budget", "100KiB")
    assert done.code == 1
    found = re.search(r"smallest feasible budget: .*, (\d+) B, set by (\S+)\)", done.error)
    assert found, done.error
    assert found[2] in chain.read_text()
    floor = int(found[1])
    assert run("plan", chain, "--policy", "liveness", "--budget", f"{floor}B").code == 0
    assert run("plan", chain, "--policy", "liveness", "--budget", f"{floor - 1024}B").code == 1


def test_host_budget_too_small(run, chain):
    policy = "liveness+offload:need=all,layers=all"
    arguments = ["plan", chain, "--policy", policy, "--budget", "1MiB"]
    assert run(*arguments).code == 0
    done = run(*arguments, "--host-budget", "1KiB")
    assert done.code in (0, 1)  # no room on the host: it keeps tensors, or it does not fit
    if done.code == 1:
        assert "host" in done.error


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["compar"], "did you mean compare?"),
        (["plan", "{}", "--policy", "livenes"], "did you mean liveness?"),
        (["compare", "{}", "--policies", "keep_al"], "did you mean keep_all?"),
        (["plan", "{}", "--policy", "offload:lookahed=3"], "lookahead"),
        (["plan", "{}", "--policy", "liveness", "--allocator", "fist_fit"], "first_fit"),
        (["plan", "{}", "--policy", "liveness", "--device", "h20"], "did you mean 'h200'?"),
        (["build", "resnet5", "-o", "x"], "resnet50"),
        (["show", "{}", "--opz"], "did you mean --ops?"),
    ],
)
def test_a_wrong_name_gets_the_nearest_right_one(arguments, hint, run, chain):
    done = run(*(a.format(chain) for a in arguments))
    assert (done.code, done.out) == (2, "")
    assert hint in done.error


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["show"],
        ["plan", "{}"],
        ["simulate", "{}"],
        ["simulate", "{}", "--policy", "liveness", "--plan", "x"],
        ["simulate", "{}", "--policy", ""],
        ["simulate", "{}", "--policy", "+"],
        ["simulate", "{}", "--policy", "liveness", "--clock", "sundial"],
        ["plan", "{}", "--policy", "liveness", "--budget", "many"],
        ["plan", "{}", "--policy", "liveness", "--budget", "-1GiB"],
        ["plan", "{}", "--policy", "liveness", "--budget", "99999999999GiB"],
        ["plan", "{}", "--policy", "liveness", "--budget", "nan%"],
        ["plan", "{}", "--policy", "liveness", "--budget", "-60%"],
        ["plan", "{}", "--policy", "liveness", "--host-budget", "60%"],
        ["plan", "{}", "--policy", "liveness", "--scale-bytes", "1/0"],
        ["plan", "{}", "--policy", "liveness", "--scale-bytes", "half"],
        ["replay", "{}", "--policy", "liveness", "--steps", "0"],
        ["replay", "{}", "--policy", "liveness", "--on", "moon"],
        ["replay", "{}", "--policy", "liveness", "--kernels", "popcorn"],
        ["trace", "small_cnn", "--on", "host", "--budget", "60%", "-o", "x"],
        ["trace", "small_cnn", "--on", "host", "--budget", "0", "-o", "x"],
        ["build", "alexnet"],
        ["build", "alexnet", "--batch", "-1", "-o", "x"],
        ["build", "alexnet", "--batch", "9223372036854775807", "-o", "x"],
        ["build", "resnet:1,2,3", "-o", "x"],
        ["build", "resnet:0,0,0,-1", "-o", "x"],
        ["show", "{}", "--liveness", "--roles", "activation,wrong"],
        ["show", "{}", "--liveness", "--by", "kernel"],
        ["show", "{}", "--names", "3"],
        ["build", "small_cnn", "--lowering", "chainer", "-o", "x"],
        ["build", "small_cnn", "--order", "sideways", "-o", "x"],
    ],
    ids=" ".join,
)
def test_a_wrong_call_is_one_line_and_2(arguments, run, chain, tmp_path):
    done = run(*(a.format(chain) for a in arguments), cwd=tmp_path)
    assert (done.code, done.out) == (2, "")
    assert done.error
    assert [file.name for file in tmp_path.iterdir()] == ["chain.jsonl"]


def test_native_kernels_for_a_trace_without_them(run, chain):
    done = run("replay", chain, "--policy", "liveness", "--kernels", "native")
    assert done.code == 2
    assert done.error


def test_kernels_of_another_machine(run):
    trace = "traces/alexnet-b128.jsonl.gz"
    done = run("replay", trace, "--policy", "liveness", "--kernels", "native", "--on", "host")
    assert done.code == 2
    assert "(--kernels verify replays any trace" in done.error


def test_a_policy_whose_facts_the_trace_lacks(run, tmp_path):
    file = tmp_path / "t.jsonl"
    file.write_text("\n".join(chain_lines(capabilities={"frees": "none"})) + "\n")
    done = run("plan", file, "--policy", "recorded")
    assert done.code == 2
    assert "recorded needs to know frees" in done.error
    compared = run("compare", file)
    assert compared.code == 0
    assert "recorded needs to know frees" in compared.out


def test_a_budget_without_unit_is_pointed_out(run, chain):
    done = run("plan", chain, "--policy", "liveness", "--budget", "1048576", "-o", "/dev/null")
    assert done.code == 0
    assert "note: --budget 1048576 has no unit: taken as 1048576 bytes" in done.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["build", "small_cnn", "-o", "{}"],
        ["plan", "{chain}", "--policy", "exec:sleep 60", "-o", "{}"],
        ["simulate", "{chain}", "--policy", "exec:sleep 60", "--json", "{}"],
        ["simulate", "{chain}", "--policy", "exec:sleep 60", "--timeline", "{}"],
        ["compare", "{chain}", "--json", "{}"],
        ["replay", "{chain}", "--policy", "exec:sleep 60", "--json", "{}"],
        ["trace", "small_cnn", "--on", "host", "-o", "{}"],
        ["calibrate", "--on", "host", "-o", "{}"],
        ["show", "{chain}", "--json", "{}"],
    ],
    ids=lambda a: " ".join(a[:1] + a[-2:-1]),
)
def test_unwritable_output_is_known_before_the_work(arguments, run, chain, tmp_path):
    for output in (tmp_path / "no" / "such" / "folder.json", tmp_path):
        start = time.monotonic()
        done = run(*(a.format(output, chain=chain) for a in arguments))
        assert (done.code, done.out) == (2, "")
        assert done.error.startswith(f"{output}: cannot be written")
        assert time.monotonic() - start < 30


def test_a_full_disk(run, chain):
    done = run("simulate", chain, "--policy", "liveness", "--json", "/dev/full")
    assert done.code == 2
    assert done.error.startswith("/dev/full: cannot be written")
    with open("/dev/full", "w") as full:
        process = subprocess.run(
            [PROGRAM, "show", chain], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert process.returncode == 2
    assert process.stderr.startswith("superneurons: standard output: cannot be written")


EXEC = {
    "crashes": ("kill -SEGV $$", 2, "signal"),
    "fails": ("echo no idea >&2; exit 3", 2, "exit status 3.*no idea"),
    "says_nothing": ("cat >/dev/null", 2, ""),
    "answers_nonsense": ("cat >/dev/null; echo a plan, surely", 2, ""),
    "is_not_there": ("/no/such/program", 2, "127"),
    "reads_nothing": ("echo {}", 2, ""),
}


@pytest.mark.parametrize("name", EXEC)
def test_a_policy_program_that_misbehaves(name, run, chain, tmp_path):
    command, code, words = EXEC[name]
    output = tmp_path / "p.jsonl"
    done = run("plan", chain, "--policy", f"exec:{command}", "-o", output)
    assert done.code == code
    assert re.search(words, done.error), done.error
    assert not output.exists()


def test_a_policy_program_that_hangs(run, chain):
    start = time.monotonic()
    done = run("plan", chain, "--policy", "exec,timeout=1:sleep 600")
    assert done.code == 2
    assert time.monotonic() - start < 30
    assert "within 1.0 s" in done.error


def test_a_policy_program_with_an_unlawful_plan(run, chain, tmp_path):
    plan = tmp_path / "p.jsonl"
    run("plan", chain, "--policy", "liveness", "-o", plan)
    text = plan.read_text()
    plan.write_text(text.replace('{"run":2}\n', "").replace('"steps":25', '"steps":24'))
    done = run("plan", chain, "--policy", f"exec:cat >/dev/null; cat '{plan}'")
    assert done.code == 1
    assert "unlawful" in done.error
    assert "c4.forward" in done.error or "c3.forward" in done.error


def test_an_error_is_one_line_whatever_it_quotes(run, chain):
    done = run("plan", chain, "--policy", "exec:echo 'a\nb\x1b[31m'; false")
    assert done.code == 2
    assert "\x1b" not in done.error


def started(process):
    time.sleep(1.5)
    assert process.poll() is None, process.communicate()


INTERRUPTED = {
    "plan": ["plan", "{chain}", "--policy", "exec:sleep 600", "-o", "{out}"],
    "compare": ["compare", "{chain}", "--policies", "exec:sleep 600", "--json", "{out}"],
    "replay": ["replay", "{small}", "--policy", "liveness", "--steps", "1000000", "--json", "{out}"],
    "trace": ["trace", "small_cnn", "--on", "host", "--steps", "1000", "--warmup", "1000",
              "-o", "{out}"],
}  # fmt: skip


@pytest.mark.parametrize("name", INTERRUPTED)
def test_interrupted_work_leaves_no_file_and_returns_130(
    name, run, interrupt, chain, small, tmp_path
):
    out = tmp_path / "out" / "file.json"
    out.parent.mkdir()
    arguments = [a.format(chain=chain, small=small, out=out) for a in INTERRUPTED[name]]
    done = interrupt(*arguments, when=started)
    assert done.code == 130, (done.code, done.err)
    assert len(done.err.splitlines()) == 1 or ": note: " in done.err
    assert os.listdir(out.parent) == []


@pytest.mark.parametrize("command", [["show"], ["check"], ["simulate", "--policy", "liveness"]])
def test_ctrl_c_ends_a_read_that_waits(interrupt, command):
    begun = time.monotonic()
    done = interrupt(command[0], "-", *command[1:], when=started, stdin=subprocess.PIPE)
    assert (done.code, done.err) == (130, "superneurons: interrupted\n")
    assert time.monotonic() - begun < 10


def test_ctrl_c_ends_the_building_of_a_deep_network(interrupt, tmp_path):
    begun = time.monotonic()
    network = "resnet:9000,9000,90000,9000"
    done = interrupt("build", network, "-o", tmp_path / "deep.jsonl.gz", when=started)
    assert (done.code, done.err) == (130, "superneurons: interrupted\n")
    assert os.listdir(tmp_path) == []
    assert time.monotonic() - begun < 10
