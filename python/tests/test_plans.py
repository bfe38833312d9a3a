"""Plans and device profiles: as the program writes them; the example policy runs."""

import io
import json
import re

import pytest

from superneurons.files import BadInput
from superneurons.plans import (
    Budget,
    Plan,
    Reason,
    Step,
    format_plan,
    parse_plan,
    read_plan,
    read_request,
    write_plan,
)
from superneurons.profiles import format_profile, parse_profile, read_profile
from superneurons.traces import format_trace
from test_traces import toy


def example(root, format):
    text = (root / "traces" / "FORMAT.md").read_text()
    return next(
        block for block in re.findall(r"```jsonl\n(.*?)```", text, re.S) if f'"{format}"' in block
    )


def test_the_examples_of_the_format_document_are_read_and_written_back(root):
    plan = example(root, "superneurons-plan")
    assert format_plan(parse_plan(plan)) == plan
    profile = example(root, "superneurons-profile")
    assert format_profile(parse_profile(profile)) == profile


def test_recorded_profiles_are_written_back_to_the_byte(root):
    files = sorted((root / "traces" / "profiles").glob("*.json"))
    assert files
    for file in files:
        assert format_profile(read_profile(str(file))) == file.read_text()


def test_a_copy_takes_latency_then_bandwidth(root):
    curve = parse_profile(
        example(root, "superneurons-profile")
    ).offload  # (4 KiB, 9 us), (1 MiB, 30 us), 50.5 B/ns
    assert curve.ns(1) == 9000
    assert curve.ns((4096 + 1048576) // 2) == 19500
    assert curve.ns(1048576 + 505) == 30010


@pytest.mark.parametrize("policy", ["keep_all", "liveness", "liveness+offload+recompute"])
def test_plans_of_the_program_are_written_back_to_the_byte(policy, root, program, tmp_path):
    file = tmp_path / "plan.jsonl"
    program(
        "plan",
        root / "traces" / "alexnet-b128.jsonl.gz",
        "--policy",
        policy,
        "--explain",
        "-o",
        file,
    )
    assert format_plan(read_plan(str(file))).encode() == file.read_bytes()


def test_a_plan_survives_a_file(tmp_path):
    plan = Plan(
        "0" * 16,
        Budget(5, 6),
        "mine",
        begin=["host"],
        reasons=[Reason(0, "because")],
        steps=[Step("prefetch", 0), Step("run", 1, 2, [3]), Step("free", 0)],
    )
    write_plan(plan, str(tmp_path / "p.jsonl.gz"))
    assert read_plan(str(tmp_path / "p.jsonl.gz")) == plan


@pytest.mark.parametrize(
    "old, new, message",
    [
        ('{"run":1', '{"walk":1', "p:3: step 1 does nothing known (would have one of"),
        ('{"run":1', '{"free":2,"run":1', "p:3: step 1 does several things"),
        ('{"run":1', '{"run":-1', '"run" of step 1 is -1'),
        ('"device":5', '"device":-5', "p:1: the budget is negative"),
        (
            '"host"]',
            '"moon"]',
            '"begin" of the header holds "moon" (would be one of device host nowhere)',
        ),
        ('"steps":2', '"steps":1', "the end record states 1 steps, the file has 2"),
    ],
)
def test_a_broken_plan_is_refused_with_its_line(old, new, message):
    text = format_plan(
        Plan("0" * 16, Budget(5), begin=["host"], steps=[Step("run", 0), Step("run", 1)])
    )
    assert old in text
    with pytest.raises(BadInput) as error:
        parse_plan(text.replace(old, new, 1), "p")
    assert message in str(error.value)


@pytest.mark.parametrize(
    "old, new, message",
    [
        (
            '"points":[[4096,9000]',
            '"points":[[4096000,9000]',
            '"offload" has points whose bytes do not ascend',
        ),
        (
            '"bytes_per_ns":52',
            '"bytes_per_ns":0',
            '"prefetch" has bytes_per_ns that is not above 0',
        ),
        ('"launch_ns":2000', '"launch_ns":-2000', '"launch_ns" is negative'),
        ('"both":0.05', '"both":-0.05', '"memory_bound" is negative'),
        ('"both":0.05', '"both":1001', '"memory_bound" has a slowdown above 1000'),
        ('"launch_ns":2000', '"launch_ns":1000000001', '"launch_ns" is above 1 s'),
        ('"flops":0.5', '"flops":0', 'the efficiency of "" is not above 0'),
        ('"device_memory":1073741824,', "", 'lacks "device_memory"'),
        (
            '"measured":false',
            '"measured":0',
            '"measured" of the profile is 0 (would be true or false)',
        ),
    ],
)
def test_a_broken_profile_is_refused(old, new, message, root):
    text = example(root, "superneurons-profile")
    assert old in text
    with pytest.raises(BadInput) as error:
        parse_profile(text.replace(old, new, 1), "f.json")
    assert "f.json:1: " in str(error.value) and message in str(error.value)


def test_a_request_is_read(root):
    profile = json.dumps(json.loads(example(root, "superneurons-profile")))
    text = (
        format_trace(toy())
        + profile
        + '\n{"allocator":"best_fit","budget":{"device":7,"host":8}}\n'
    )
    request = read_request(io.BytesIO(text.encode()))
    assert request.trace == toy() and request.profile.name == "toy"
    assert request.budget == Budget(7, 8) and request.allocator == "best_fit"
    with pytest.raises(BadInput, match="is no request"):
        read_request(io.BytesIO(b"{}"))
    with pytest.raises(BadInput, match='standard input:9: the request lacks "allocator"'):
        read_request(io.BytesIO(text.replace('"allocator"', '"other"').encode()))


def test_the_example_policy_is_short_and_plans_as_liveness_does(root, program, python, tmp_path):
    script = root / "python" / "examples" / "keep_most.py"
    assert len(script.read_text().splitlines()) <= 30
    peaks = []
    for policy in (f"exec:{python} {script}", "liveness"):
        program(
            "simulate",
            root / "traces" / "alexnet-b128.jsonl.gz",
            "--policy",
            policy,
            "--json",
            tmp_path / "r.json",
        )
        peaks.append(
            json.loads((tmp_path / "r.json").read_text())["outcomes"][0]["live_peak_bytes"]
        )
    assert peaks[0] == peaks[1]
