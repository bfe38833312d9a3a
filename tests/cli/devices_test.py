"""Costs from recorded traces and from the cost model, on any device."""

import gzip
import json
import re
from pathlib import Path

import pytest

RECORDED = "traces/resnet50-b64.jsonl.gz"


def records(file):
    text = gzip.open(file, "rt").read()
    return [json.loads(line) for line in text.splitlines()]


def test_a_deeper_sibling_takes_the_recorded_costs(run, tmp_path):
    file = tmp_path / "deep.jsonl.gz"
    done = run("build", "resnet:3,4,60,3", "--batch", "64", "--costs-from", RECORDED, "-o", file)
    assert done.code == 0, done.err
    header, *rest = records(file)
    ops = [record for record in rest if record["r"] == "op"]
    assert f"costs of {len(ops)} of {len(ops)} ops as recorded on NVIDIA H200" in header["origin"]
    assert header["device"] == "NVIDIA H200"
    assert header["capabilities"]["durations"] == "exact"
    known = {
        choice["ns"]
        for record in records("traces/resnet50-b64.jsonl.gz")
        if record["r"] == "op"
        for choice in record["choices"]
    }
    single = [op for op in ops if op["layer"] == "conv1" and len(op["choices"]) > 1]
    assert single and all(choice["ns"] in known for op in single for choice in op["choices"])


def test_what_no_trace_has_is_estimated_and_said(run, tmp_path):
    file = tmp_path / "other_batch.jsonl.gz"
    traces = ["--costs-from", RECORDED, "--costs-from", "traces/resnet50-b64-tf32.jsonl.gz"]
    done = run("build", "resnet50", "--batch", "48", *traces, "-o", file)
    assert done.code == 0, done.err
    assert "of the others estimated" in done.out
    header = records(file)[0]
    assert "of the others: cost model of h200" in header["origin"]
    assert header["capabilities"]["durations"] == "inferred"


def test_costs_that_cannot_be_copied_are_refused(run, chain, small, tmp_path):
    def refused(*arguments):
        done = run("build", *arguments, "-o", tmp_path / "out.jsonl")
        assert done.code == 2
        assert not (tmp_path / "out.jsonl").exists()
        return done.error

    assert "measured on no device" in refused("small_cnn", "--costs-from", small)
    assert "cannot be opened" in refused("small_cnn", "--costs-from", tmp_path / "none.jsonl")
    assert "not of a built-in network" in refused(
        "resnet50", "--costs-from", "traces/pytorch/torchvision-resnet50-b64.jsonl.gz"
    )
    host = "traces/small_cnn-b8-host.jsonl.gz"
    assert "no op of" in refused("vgg16", "--batch", "3", "--costs-from", host)
    assert "no profile of host" in refused("small_cnn", "--batch", "9", "--costs-from", host)


NETWORKS = ["alexnet-b128", "vgg16-b64", "resnet50-b64", "resnet152-b32"]
PROFILES = ["a100-40gb", "h200", "k40c-12gb", "rtx4090", "titan-xp", "v100-16gb"]


def simulated(run, file, *arguments):
    done = run("simulate", RECORDED, "--policy", "keep_all", "--json", file, *arguments)
    assert done.code == 0, done.err
    return done, json.loads(file.read_text())["outcomes"][0]


def test_devices_lists_what_is_measured_and_what_is_from_a_data_sheet(run, tmp_path):
    done = run("devices", "--json", tmp_path / "d.json")
    rows = {row["name"]: row for row in json.loads((tmp_path / "d.json").read_text())["devices"]}
    assert sorted(rows) == PROFILES
    assert [name for name, row in rows.items() if row["measured"]] == ["h200"]
    assert done.out.count("from a data sheet") == len(PROFILES) - 1


def test_times_are_scaled_to_a_device_that_was_asked_for_and_that_is_said(run, tmp_path):
    _, there = simulated(run, tmp_path / "a.json")
    done, here = simulated(run, tmp_path / "b.json", "--device", "titan-xp")
    assert "scaled from NVIDIA H200 to NVIDIA TITAN Xp" in done.err
    assert "op times scaled from NVIDIA H200" in done.out
    assert here["scaled_from"] == "NVIDIA H200"
    assert "scaled_from" not in there
    assert here["trace_hash"] == there["trace_hash"]
    # The rates of the two cards differ by a factor of 4 (arithmetic) and of 9 (memory).
    assert 4 < here["compute_ns"] / there["compute_ns"] < 9


def test_a_plan_goes_between_devices(run, tmp_path):
    plan = tmp_path / "plan.jsonl"
    policy = ["--policy", "liveness_offload", "--budget", "60%"]
    assert run("plan", RECORDED, *policy, "--device", "k40c-12gb", "-o", plan).code == 0
    for device in ["h200", "k40c-12gb"]:
        assert run("simulate", RECORDED, "--plan", plan, "--device", device).code == 0
    assert run("check", RECORDED, "--plan", plan).code == 0


def test_compare_and_show_scale_as_well(run, tmp_path):
    file = tmp_path / "c.json"
    common = [RECORDED, "--device", "v100-16gb", "--json", file]
    done = run("compare", *common, "--policies", "liveness", "--budgets", "100%")
    assert "estimated: scaled from NVIDIA H200 to Tesla V100-PCIE-16GB" in done.out
    assert json.loads(file.read_text())["outcomes"][0]["scaled_from"] == "NVIDIA H200"
    assert run("show", *common).code == 0
    shown = json.loads(file.read_text())
    assert shown["device"] == "Tesla V100-PCIE-16GB"
    kinds = shown["kinds"]
    assert kinds["ReluForward"]["forward_made_bytes"] > 0
    assert kinds["SgdUpdate"]["forward_ns"] == 0
    assert run("show", RECORDED, "--json", file).code == 0
    recorded = json.loads(file.read_text())
    assert recorded["trace_hash"] == shown["trace_hash"]
    assert recorded["kinds"]["ReluForward"]["ns"] < kinds["ReluForward"]["ns"]


def test_times_that_cannot_be_scaled_stay_and_that_is_said(run, small):
    host = "traces/small_cnn-b8-host.jsonl.gz"
    done = run("simulate", host, "--policy", "liveness", "--device", "titan-xp")
    assert done.code == 0
    assert "no profile of host to scale from" in done.err
    done = run("simulate", small, "--policy", "liveness", "--device", "titan-xp")
    assert "not those of NVIDIA TITAN Xp" in done.err
    assert run("simulate", small, "--policy", "liveness", "--device", "h200").err == ""


def test_efficiencies_are_fitted_and_held_out(run, tmp_path):
    profile, errors = tmp_path / "mine.json", tmp_path / "errors.json"
    traces = [f"traces/{name}.jsonl.gz" for name in NETWORKS]
    fit = ["calibrate", *(word for trace in traces for word in ("--fit", trace))]
    done = run(*fit, "--held-out", "-o", profile, "--json", errors)
    assert done.code == 0, done.err
    rows = json.loads(errors.read_text())["errors"]
    assert [(row["held_out"], row["fitted_on"]) for row in rows] == [("network", 3)] * 4
    assert all(abs(row["total"]) < 0.10 for row in rows), "as bench/README.md says"
    written = json.loads(profile.read_text())
    assert written["efficiency"]["Conv2dForward/transform"]["flops"] <= 1
    assert "fitted on " + ", ".join(NETWORKS) in written["origin"]
    # What is fitted again says so once.
    assert run(*fit, "--device", profile, "-o", tmp_path / "again.json").code == 0
    assert json.loads((tmp_path / "again.json").read_text())["origin"].count("fitted on") == 1
    assert run(*fit, "--onto", "titan-xp", "-o", tmp_path / "other.json").code == 0
    other = json.loads((tmp_path / "other.json").read_text())
    assert (other["name"], other["measured"]) == ("titan-xp", False)
    assert other["efficiency"] == written["efficiency"]


def test_fits_that_make_no_sense_are_refused(run, small, tmp_path):
    def refused(*arguments):
        done = run("calibrate", *arguments)
        assert done.code == 2
        return done.error

    assert "measured on no device" in refused("--fit", small)
    assert "-o FILE" in refused()
    assert "go with --fit" in refused("--held-out")
    host = "traces/small_cnn-b8-host.jsonl.gz"
    assert "profile h200 is of NVIDIA H200" in refused("--fit", host)
    assert "cannot be opened" in refused("--fit", tmp_path / "none.jsonl")
    assert "two networks" in refused("--fit", RECORDED, "--held-out")
    assert "did you mean 'titan-xp'" in refused("--fit", RECORDED, "--onto", "titan-x")


def has_gpu():
    return Path("/dev/nvidiactl").exists()


@pytest.mark.skipif(has_gpu(), reason="there is a GPU")
@pytest.mark.parametrize(
    "arguments",
    [
        ["replay", "{}", "--policy", "liveness", "--on", "cuda"],
        ["trace", "small_cnn", "--on", "cuda", "-o", "x.jsonl"],
        ["calibrate", "--on", "cuda", "-o", "x.json"],
    ],
    ids=lambda a: a[0],
)
def test_no_gpu_is_said(arguments, run, chain, tmp_path):
    done = run(*(a.format(chain) for a in arguments), cwd=tmp_path)
    assert done.code == 2
    assert re.search("no usable GPU|no CUDA backend", done.error)
    assert "--on host" in done.error
    assert [file.name for file in tmp_path.iterdir()] == ["chain.jsonl"]
