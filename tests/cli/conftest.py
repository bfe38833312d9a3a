"""What the tests of the command line share.

They run the program as a user does: $SUPERNEURONS, else build/superneurons. A build with sanitizers
works as well: SUPERNEURONS=build-asan/superneurons python3 -m pytest tests/cli
"""

import json
import os
import re
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("SUPERNEURONS", ROOT / "build" / "superneurons")).resolve()
EXIT_CODES = {0, 1, 2, 130}


def pytest_addoption(parser):
    parser.addoption("--regenerate", action="store_true", help="write the golden files anew")


@dataclass
class Done:
    code: int
    out: str
    err: str

    @property
    def error(self):
        """The one line of error; notes and progress are no errors."""
        lines = [line for line in self.err.splitlines() if ": note: " not in line]
        assert len(lines) == 1, self.err
        assert lines[0].startswith("superneurons: "), self.err
        return lines[0].removeprefix("superneurons: ")


def call(*arguments, stdin="", timeout=120, **options):
    done = subprocess.run(
        [PROGRAM, *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=options.pop("cwd", ROOT),
        check=False,
        **options,
    )
    assert "Sanitizer" not in done.stderr, done.stderr
    assert done.returncode in EXIT_CODES, (done.returncode, done.stderr)
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="session")
def run():
    """run("show", file) calls the program; it fails on a crash, a sanitizer's report or an exit
    code that the program does not have."""
    if not PROGRAM.exists():
        pytest.fail(f"{PROGRAM} is not built")
    return call


@pytest.fixture
def interrupt():
    """Starts the program, waits for a condition, sends Ctrl-C; returns how it ended."""

    def interrupted(*arguments, when, **options):
        process = subprocess.Popen(
            [PROGRAM, *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            **options,
        )
        try:
            when(process)
            process.send_signal(signal.SIGINT)
            if process.stdin:
                process.wait(timeout=60)  # communicate() would end what the program waits for
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
        assert "Sanitizer" not in err, err
        return Done(process.returncode, out, err)

    return interrupted


def chain_lines(layers=4, kib=64, capabilities=()):
    """A trace as text lines: a chain of convolutions, forward, backward, update."""
    facts = ["accesses", "frees", "durations", "workspaces", "choices", "layers", "phases"]
    header = {"r": "header", "format": "superneurons-trace", "version": "0.1", "name": "chain"}
    header |= {"device": "NVIDIA H200", "lowering": "native", "batch": 1}
    header["capabilities"] = {fact: "exact" for fact in facts} | dict(capabilities)
    tensors, ops, ids = [], [], {}

    def tensor(name, kib, role, **more):
        ids[name] = len(tensors)
        tensors.append({"r": "tensor", "id": ids[name], "name": name, "bytes": kib * 1024})
        tensors[-1] |= {"role": role} | more

    def op(name, kind, phase, layer, reads, writes, **more):
        ops.append({"r": "op", "id": len(ops), "name": name, "kind": kind, "phase": phase})
        ops[-1] |= {"layer": layer, "reads": [ids[t] for t in reads]}
        ops[-1] |= {"writes": [ids[t] for t in writes]} | more

    total = 3 * layers
    tensor("y0", kib, "input")
    for i in range(1, layers + 1):
        tensor(f"w{i}", 4, "parameter")
        tensor(f"y{i}", kib, "activation", layer=f"c{i}", freed_before=layers + layers - i + 1)
        tensor(f"g{i}", kib, "activation_gradient", freed_before=layers + layers - i + 1)
        tensor(f"dw{i}", 4, "gradient", freed_before=total)
    tensor("g0", kib, "activation_gradient", freed_before=2 * layers)
    for i in range(1, layers + 1):
        writes = [f"y{i}"] + ([f"g{layers}"] if i == layers else [])
        op(f"c{i}.forward", "Conv2dForward", "forward", f"c{i}", [f"w{i}", f"y{i - 1}"], writes,
           choices=[{"ns": 20000, "workspace": 8192}])  # fmt: skip
    for i in range(layers, 0, -1):
        reads = [f"w{i}", f"g{i}", f"y{i - 1}"] + ([f"y{i}"] if i == layers else [])
        op(f"c{i}.backward", "Conv2dBackward", "backward", f"c{i}", reads,
           [f"g{i - 1}", f"dw{i}"], choices=[{"ns": 40000}])  # fmt: skip
    for i in range(1, layers + 1):
        op(f"w{i}.update", "SgdUpdate", "update", f"c{i}", [f"w{i}", f"dw{i}"], [f"w{i}"],
           choices=[{"ns": 1000}], rerunnable=False)  # fmt: skip
    carry = [ids["y0"]] + [ids[f"w{i}"] for i in range(1, layers + 1)]
    end = {"r": "end", "tensors": len(tensors), "ops": len(ops), "carry": len(carry)}
    end["bytes"] = sum(record["bytes"] for record in tensors)
    carries = [{"r": "carry", "start": t} for t in carry]
    return [json.dumps(record) for record in [header, *tensors, *ops, *carries, end]]


@pytest.fixture
def chain(tmp_path):
    """A trace file of a chain of four convolutions."""
    file = tmp_path / "chain.jsonl"
    file.write_text("\n".join(chain_lines()) + "\n")
    return file


@pytest.fixture(scope="session")
def small(tmp_path_factory, run):
    """A trace file of the small convolutional net from the cost model."""
    file = tmp_path_factory.mktemp("small") / "small.jsonl"
    assert run("build", "small_cnn", "-o", file).code == 0
    return file


def without_paths(text, *folders):
    """Text with times of the day, dates and the given folders taken out, for golden files."""
    for folder in folders:
        text = text.replace(str(folder) + "/", "")
    return re.sub(r"\d{4}-\d\d-\d\d", "DATE", text)
