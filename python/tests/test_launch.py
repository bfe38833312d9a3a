"""A PyTorch program under `superneurons trace`: it behaves as without us, whatever happens to it."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest
from superneurons.options import too_old

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
if too_old(torch.__version__):
    pytest.skip(f"capture {too_old(torch.__version__)}", allow_module_level=True)

from superneurons.convert import convert_all  # noqa: E402
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
    def run(body, *options, launcher=True, environment=None, command=("train.py",)):
        (tmp_path / "train.py").write_text(HEAD + body)
        words = [sys.executable, *command]
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


def test_kill_in_the_middle_leaves_what_was_watched(call, tmp_path):
    body = """
for i in range(12):
    if i == 5:
        loss = model(data)
        os.kill(os.getpid(), 9)
    step()
"""
    done = call(body, "--keep-raw", "raw")
    assert done.returncode == 128 + 9
    said = "the capture has no end record: training step 2 of 3 is the last that was watched to its end"
    assert said in done.stderr
    whole = (tmp_path / "t.jsonl").read_text()
    body = body.replace("i == 5", "i == 3")
    done = call(body, "--keep-raw", "raw2")
    assert "the training step is cut off after op" in done.stderr
    trace = read_trace(str(tmp_path / "t.jsonl"))
    assert trace.capabilities["accesses"] == trace.capabilities["frees"] == "inferred"
    convert_all(str(tmp_path / "raw"), str(tmp_path / "again.jsonl"))
    assert (tmp_path / "again.jsonl").read_text() == whole


def test_forks_and_workers_of_data_loaders_leave_nothing(call, tmp_path):
    body = """
from torch.utils.data import DataLoader, TensorDataset
loader = DataLoader(TensorDataset(torch.randn(32, 8)), batch_size=4, num_workers=2)
for i, (batch,) in enumerate(loader):
    data = batch
    step()
    if i == 4:
        child = os.fork()
        if child == 0:
            print("child", torch.ones(3).sum().item(), flush=True)
            os._exit(0)
        os.waitpid(child, 0)
"""
    done, alone = call(body), call(body, launcher=False)
    assert (done.returncode, done.stdout) == (0, alone.stdout), done.stderr
    assert left(tmp_path) == ["t.jsonl", "train.py"]


def test_one_file_per_rank(call, tmp_path):
    body = """
import subprocess
if "RANK" not in os.environ:
    ranks = [subprocess.Popen([sys.executable, *sys.argv],
             env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2"}) for rank in range(2)]
    sys.exit(max(rank.wait() for rank in ranks))
for _ in range(12): step()
"""
    done = call(body, "--steps", "1")
    assert done.returncode == 0, done.stderr
    assert left(tmp_path) == ["t.rank0.jsonl", "t.rank1.jsonl", "train.py"]
    assert "rank 1 of 2" in read_trace(str(tmp_path / "t.rank1.jsonl")).origin


def test_a_profiler_that_is_active_wins(call, tmp_path):
    body = """
with torch.profiler.profile() as profile:
    for _ in range(9): step()
print(any("mm" in event.key for event in profile.key_averages()))
"""
    done = call(body)
    assert done.returncode == 2 and done.stdout.endswith("True\n")
    assert done.stderr.count("not captured: torch.profiler is active") == 1
    assert left(tmp_path) == ["train.py"]


def test_compiled_functions_run_as_written_and_options_are_those_of_the_launcher(call, tmp_path):
    body = "model = torch.compile(model, backend='eager')\nfor _ in range(12): step()\n"
    done = call(body, "--keep-raw", "raw", "--steps", "1", "--name", "mine", "--batch", "4")
    assert done.returncode == 0, done.stderr
    trace = read_trace(str(tmp_path / "t.jsonl"))
    assert (trace.name, trace.batch) == ("mine", 4)
    assert "warning: torch.compile was off until the capture was over" in done.stderr
    (raw,) = (tmp_path / "raw").glob("capture.*.jsonl")
    assert json.loads(raw.read_text().splitlines()[0])["options"]["steps"] == 1


def test_a_kill_in_warm_up_is_told_as_one(call, tmp_path):
    body = "for _ in range(2): step()\nos.kill(os.getpid(), 9)\n"
    done = call(body)
    assert done.returncode == 128 + 9 and left(tmp_path) == ["train.py"]
    assert "killed by signal 9, when it was still in warm-up, after 2 training steps" in done.stderr
    assert "as with os._exit(), when it" in call("step()\nos._exit(0)\n").stderr


@pytest.mark.parametrize("optimizers", ["two", "none"])
def test_two_optimizers_or_none(call, tmp_path, optimizers):
    body = """
other = torch.optim.SGD([torch.nn.Parameter(torch.ones(3, requires_grad=True))], lr=0.1)
other.param_groups[0]["params"][0].grad = torch.ones(3)
for _ in range(12):
    step()
    other.step()
"""
    if optimizers == "none":
        body = """
import superneurons
for _ in range(12):
    loss = model(data).square().mean()
    for p, grad in zip(model.parameters(), torch.autograd.grad(loss, list(model.parameters()))):
        p.data.sub_(grad, alpha=0.1)
    superneurons.training_step()
"""
    done = call(body)
    assert done.returncode == 0 and "warning" not in done.stderr, done.stderr
    trace = read_trace(str(tmp_path / "t.jsonl"))
    assert [op.kind for op in trace.ops].count("aten::addmm") == 2


@pytest.mark.parametrize("output", ["none/t.jsonl", "."])
def test_an_output_that_cannot_be_written_is_known_before_the_program_runs(call, tmp_path, output):
    done = call("step()\n", "-o", output)
    assert done.returncode == 2 and done.stdout == ""
    assert f"superneurons: {output}: cannot be written" in done.stderr


def test_what_cannot_be_converted_is_kept_and_said_where(call, tmp_path):
    body = """
import glob, json
for _ in range(12): step()
file = glob.glob(json.loads(os.environ["SUPERNEURONS_CAPTURE"])["folder"] + "/capture.*")[0]
with open(file) as before: text = before.read()
with open(file, "w") as after: after.write(text.replace('"r":"step_end"', '"r":"step', 1))
"""
    done = call(body)
    assert done.returncode == 2 and left(tmp_path) == ["train.py"]
    kept = re.search(
        r"is kept in (\S+): `python -m superneurons.convert \1 -o t.jsonl`", done.stderr
    )
    assert len(os.listdir(kept[1])) == 2
    shutil.rmtree(kept[1])


def test_a_program_that_is_not_there(call, root):
    words = [sys.executable, "-m", "superneurons.launch", "-o", "t.jsonl", "--", "nosuchprog"]
    environment = {**os.environ, "PYTHONPATH": str(root / "python")}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 127 and done.stderr.startswith("superneurons: nosuchprog: not found")


def test_ranks_of_torchrun_train_together(call, tmp_path):
    pytest.importorskip("torch.distributed.run", reason="this PyTorch has no torchrun")
    body = """
import torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = data + dist.get_rank()
for _ in range(12): step()
dist.destroy_process_group()
"""
    (tmp_path / "train.py").write_text(HEAD + body)
    done = call(body, command=["-m", "torch.distributed.run", "--nproc-per-node", "2",
                               "--master-port", "29613", "train.py"])  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert left(tmp_path) == ["t.rank0.jsonl", "t.rank1.jsonl", "train.py"]
    for rank in (0, 1):
        trace = read_trace(str(tmp_path / f"t.rank{rank}.jsonl"))
        assert f"rank {rank} of 2" in trace.origin
        (sums,) = [op for op in trace.ops if op.kind == "c10d::allreduce_"]
        assert sums.phase == "backward" and not sums.rerunnable
        assert [access.tensor for access in sums.writes] == [access.tensor for access in sums.reads]
