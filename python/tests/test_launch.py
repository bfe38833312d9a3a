"""A PyTorch program under `superneurons trace`: it behaves as without us, whatever happens to it."""

import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from superneurons.traces import read_trace  # noqa: E402

HEAD = """
import os, sys, torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.randn(4, 8)
def step():
    optimizer.zero_grad()
    loss = model(data).square().mean()
    loss.backward()
    optimizer.step()
    print(loss.item())
"""


@pytest.fixture
def call(tmp_path, root):
    def run(body, *options, launcher=True, environment=None):
        (tmp_path / "train.py").write_text(HEAD + body)
        words = [sys.executable, "train.py"]
        if launcher:
            launch = [sys.executable, "-m", "superneurons.launch", "-o", "t.jsonl"]
            words = [*launch, "--untouched", "2", *options, "--", *words]
        paths = os.pathsep.join(filter(None, [str(root / "python"), os.environ.get("PYTHONPATH")]))
        everything = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
        return subprocess.run(
            words, cwd=tmp_path, capture_output=True, text=True, check=False,
            env={**everything, **(environment or {})},
        )  # fmt: skip

    return run


def left(tmp_path):
    return sorted(os.listdir(tmp_path))


def test_the_program_goes_on_to_its_end_with_its_own_output(call, tmp_path):
    body = "for _ in range(12): step()\nprint(sys.argv, __name__)\nsys.exit(3)\n"
    done, alone = call(body), call(body, launcher=False)
    assert (done.returncode, done.stdout) == (alone.returncode, alone.stdout) == (3, done.stdout)
    assert "t.jsonl: " in done.stderr and "untouched" in done.stderr
    assert left(tmp_path) == ["t.jsonl", "train.py"]
    trace = read_trace(str(tmp_path / "t.jsonl"))
    assert trace.name == "train" and trace.step_ns_untraced > 0


def test_it_can_be_ended_when_all_is_captured(call):
    done = call("for _ in range(1000): step()\n", "--stop-after")
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 3 + 3 + 2 - 1
    assert "the program ends here, after 8 training steps" in done.stderr


@pytest.mark.parametrize("steps", [0, 2])
def test_one_that_ends_before_the_window_is_told_so(call, tmp_path, steps):
    done = call(f"for _ in range({steps}): step()\n")
    assert done.returncode == 2 and len(done.stdout.splitlines()) == steps
    why = f"ended after {steps} training steps" if steps else "no optimizer made a step"
    assert why in done.stderr and left(tmp_path) == ["train.py"]


def test_a_bug_in_the_middle_of_the_window_is_the_programs(call, tmp_path):
    body = "for i in range(9):\n    step()\n    if i == 4: model(data.double())\n"
    done, alone = call(body), call(body, launcher=False)
    assert done.returncode == alone.returncode == 1 and done.stdout == alone.stdout
    assert "RuntimeError" in done.stderr
    assert read_trace(str(tmp_path / "t.jsonl")).capabilities["frees"] == "exact"


def test_running_out_of_memory_can_be_caught_as_always(call, tmp_path):
    body = """
for i in range(12):
    step()
    if i == 4:
        try:
            torch.empty(1 << 60)
        except RuntimeError:
            print("caught")
"""
    done, alone = call(body), call(body, launcher=False)
    assert (done.returncode, done.stdout) == (0, alone.stdout) and "caught" in done.stdout
    assert (tmp_path / "t.jsonl").exists()
