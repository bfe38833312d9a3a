"""Costs from recorded traces and from the cost model, on any device."""

import gzip
import json

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
