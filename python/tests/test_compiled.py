"""Captures of compiled programs: kernels from the collector's log, memory from the allocator's
history, on one clock."""

import json
import random
from pathlib import Path

import pytest

from superneurons.compiled_trace import clock_offset
from superneurons.convert import convert
from superneurons.files import BadInput
from superneurons.program import find_program, run
from superneurons.traces import read_trace

BASE = 1_700_000_000_000_000_000  # of the host's clock when that of the log shows 0
CAPTURE = {"r": "header", "format": "superneurons-capture", "version": "0.1", "device": "cuda",
           "device_name": "Toy", "torch": "2.11.0", "name": "train.py", "activities": True,
           "memory": True, "compiled": True, "options": {"steps": 2, "untouched": 2}}  # fmt: skip
LOG = {"r": "header", "format": "superneurons-activities", "version": "0.1", "process": 7}
NAMES = [
    "cudaDeviceSynchronize_v3020",
    "cudaLaunchKernel",
    "triton_poi_fused_relu_0",
    "triton_red_1",
]


class Program:
    """Two training steps of two kernels each. In the first kernel a piece of 4096 bytes is made that
    the second frees; 1024 bytes are there all the time, and a segment that the driver gave."""

    def __init__(self):
        self.now, self.calls = 1_000_000, 0
        self.capture, self.log = [CAPTURE], [LOG]
        self.log += [{"r": "name", "id": i, "text": text} for i, text in enumerate(NAMES)]
        self.log.append({"r": "allocate", "address": 1 << 20, "bytes": 1 << 20, "at": 5})
        self.log.append({"r": "allocate", "address": 9 << 20, "bytes": 2048, "at": 6})
        self.capture.append({"r": "segment", "address": 1 << 20, "bytes": 1 << 20})
        self.capture.append({"r": "held", "address": 1 << 20, "bytes": 1024})
        self.boundary()
        for step in range(2):
            self.capture.append({"r": "step", "step": step, "allocated": 1024})
            self.event("allocate", 4096)
            self.kernel(2, 40_000)
            self.kernel(3, 60_000)
            self.event("free", 4096)
            self.capture.append({"r": "step_end", "step": step, "ns": 200_000})
            self.boundary()
        self.capture.append({"r": "untouched", "ns": [150_000, 150_000], "host_ns": [1, 1],
                             "allocated": 1024 + 4096, "reserved": 1 << 20})  # fmt: skip
        self.capture.append({"r": "end", "why": ""})
        self.log.append({"r": "end", "activities": 4, "dropped": 0})

    def event(self, kind, size):
        self.now += 3_000
        us = (BASE + self.now) // 1000
        self.capture.append({"r": kind, "address": (1 << 20) + 1024, "bytes": size, "us": us})
        self.now += 3_000

    def call(self, name, took):
        self.calls += 1
        self.log.append({"r": "call", "name": name, "call": self.calls, "thread": 3,
                         "start": self.now, "end": self.now + took})  # fmt: skip

    def kernel(self, name, took):
        self.call(1, 2_000)
        self.log.append({"r": "kernel", "name": name, "call": self.calls, "stream": 7,
                         "start": self.now + 5_000, "end": self.now + 5_000 + took})  # fmt: skip
        self.now += 10_000

    def boundary(self):
        self.now += 200_000
        self.call(0, 50_000)  # another wait
        self.now += 60_000
        clocks = []
        for count in range(8):
            self.now += 100_000 * count
            self.call(0, 3_000)
            clocks.append([BASE + self.now - 700, BASE + self.now + 3_900])
            self.now += 20_000
        self.capture.append({"r": "boundary", "clocks": clocks})

    def write(self, folder):
        for name, records in (("capture", self.capture), ("activities", self.log)):
            text = "".join(json.dumps(record) + "\n" for record in records)
            (folder / f"{name}.7.jsonl").write_text(text)
        return str(folder / "capture.7.jsonl")


@pytest.fixture(autouse=True)
def built():
    if find_program() is None:
        pytest.skip("superneurons is not built (build/superneurons, or name it in $SUPERNEURONS)")


def test_kernels_are_ops_and_pieces_of_the_allocator_are_tensors(tmp_path):
    file = str(tmp_path / "t.jsonl")
    report = convert(Program().write(tmp_path), file, batch=4)
    trace = read_trace(file)
    assert [op.kernels for op in trace.ops] == [[(NAMES[2], 40_000)], [(NAMES[3], 60_000)]]
    assert (trace.name, trace.batch, trace.device) == ("train", 4, "Toy")
    assert (trace.step_ns_untraced, trace.step_ns_traced) == (150_000, 200_000)
    assert "torch 2.11.0, compiled" in trace.origin
    # The segment is no tensor, but what was given out of it; memory of others is.
    sizes = sorted((tensor.bytes, tensor.freed_before) for tensor in trace.tensors)
    assert sizes == [(1024, None), (2048, None), (4096, 2)]
    assert [access.tensor for access in trace.ops[0].writes] == [
        i for i, tensor in enumerate(trace.tensors) if tensor.bytes == 4096
    ]
    assert report.rebuilt_peak == 1024 + 2048 + 4096
    assert trace.capabilities.get("accesses", "none") == "none"
    assert "lawful" in run("check", file)
    with pytest.raises(RuntimeError, match="accesses"):
        run("plan", file, "--policy", "liveness")


def test_the_clocks_are_compared_by_waits_that_stand_on_both():
    clocks = [(BASE + 1_000 * t, BASE + 1_000 * t + 900) for t in (0, 200, 1_200, 3_400)]
    pattern = [(1_000 * t, 1_000 * t + 100) for t in (-900, 400, 600, 1_600, 3_800, 9_000)]
    waits = pattern + [(start + 20_000_000, end + 20_000_000) for start, end in pattern]
    assert abs(clock_offset(clocks, waits) - (BASE - 400_000)) <= 400
    assert abs(clock_offset(clocks, waits, near=BASE - 20_380_000) - (BASE - 20_400_000)) <= 400
    apart = [(t, t + 100) for t in (0, 100_000, 500_000, 900_000)]
    assert clock_offset(clocks, apart) is None and clock_offset(clocks, waits, 0) is None
    assert clock_offset(clocks, waits[:3]) is None


def test_a_kill_in_the_second_training_step_leaves_the_first(tmp_path):
    program = Program()
    ends = [i for i, record in enumerate(program.capture) if record["r"] == "boundary"]
    program.capture = program.capture[: ends[1] + 2]
    report = convert(program.write(tmp_path), str(tmp_path / "t.jsonl"))
    assert [op.kernels[0][0] for op in report.trace.ops] == NAMES[2:]
    said = "the capture has no end record: training step 1 of 2 is the last that was watched to its end"
    assert said in report.warnings
    program.capture = program.capture[: ends[0] + 2]
    with pytest.raises(BadInput, match="no training step was watched to its end"):
        convert(program.write(tmp_path), str(tmp_path / "t.jsonl"))


def test_without_the_log_or_on_another_clock_there_is_an_error(tmp_path):
    program = Program()
    raw = program.write(tmp_path)
    for record in program.log:
        if record["r"] == "call" and record["start"] > 9_000_000:
            record["start"] += 3_000_000
            record["end"] += 3_000_000
    program.write(tmp_path)
    with pytest.raises(BadInput, match="its clock cannot be told"):
        convert(raw, str(tmp_path / "t.jsonl"))
    (tmp_path / "activities.7.jsonl").unlink()
    with pytest.raises(BadInput, match="is not there"):
        convert(raw, str(tmp_path / "t.jsonl"))


def test_damage_is_an_error_or_a_lawful_trace(tmp_path):
    raw = Program().write(tmp_path)
    draw = random.Random(1)
    whole = {
        name: (tmp_path / name).read_text() for name in ("capture.7.jsonl", "activities.7.jsonl")
    }
    for _ in range(60):
        name = draw.choice(list(whole))
        text = list(whole[name])
        for _ in range(draw.choice([1, 1, 3])):
            at = draw.randrange(len(text))
            text[at] = draw.choice(['"', "{", "9", "-", "]", "\n", "", "x", "[[", "1e9"])
        (tmp_path / name).write_text("".join(text))
        try:
            convert(raw, str(tmp_path / "t.jsonl"))
            read_trace(str(tmp_path / "t.jsonl"))
        except BadInput as error:
            assert error.message
        (tmp_path / name).write_text(whole[name])
    assert Path(raw).read_text() == whole["capture.7.jsonl"]
