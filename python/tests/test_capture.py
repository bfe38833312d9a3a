"""The PyTorch capture on the CPU: what it writes is a lawful trace that can be planned for, and it
never stands in the program's way."""

import gzip
import importlib
import json
import os
import re
import shutil
import time

import pytest
from superneurons.options import too_old

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
if too_old(torch.__version__):
    pytest.skip(f"capture {too_old(torch.__version__)}", allow_module_level=True)

import superneurons  # noqa: E402
from superneurons.convert import convert_all  # noqa: E402
from superneurons.files import BadInput  # noqa: E402
from superneurons.traces import read_trace  # noqa: E402
from torch_models import Block, Checkpointed, ConvNet, Lstm, Mlp, training  # noqa: E402


def captured(tmp_path, step, named="net.jsonl", steps=2, **options):
    """Captures training steps, and gives the trace, the report and the losses."""
    file = str(tmp_path / named)
    with superneurons.capture(file, warmup=1, steps=steps, untouched=1, **options) as capture:
        losses = [step() for _ in range(steps + 3)]
    return read_trace(file), capture.report, [float(loss) for loss in losses]


def made(make, **options):
    torch.manual_seed(1)
    model = make()
    return model, training(model, **options)


def adam(model):
    return torch.optim.AdamW(model.parameters(), lr=0.01)


PROGRAMS = {
    "mlp": lambda: made(Mlp),
    "conv": lambda: made(ConvNet),
    "transformer": lambda: made(Block),
    "lstm": lambda: made(Lstm),
    "autocast": lambda: made(Block, autocast=True),
    "accumulation": lambda: made(ConvNet, micro_batches=3),
    "checkpointing": lambda: made(Checkpointed),
    "reentrant": lambda: made(lambda: Checkpointed(reentrant=True)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_captured_is_lawful_exact_and_the_program_unchanged(tmp_path, name):
    model, step = PROGRAMS[name]()
    alone = [float(step()) for _ in range(5)]
    model, step = PROGRAMS[name]()
    trace, report, losses = captured(tmp_path, step, model=model)
    assert losses == alone
    assert report.warnings == []
    assert trace.capabilities["accesses"] == trace.capabilities["frees"] == "exact"
    assert {op.phase for op in trace.ops} >= {"forward", "backward", "update"}
    parameters = sum(p.numel() * 4 for p in model.parameters())
    for role in ("parameter", "optimizer_state"):
        found = sum(tensor.bytes for tensor in trace.tensors if tensor.role == role)
        assert found == parameters
    layers = {name for name, _ in model.named_modules()}
    assert {op.layer for op in trace.ops} <= layers
    with_weights = {name.rpartition(".")[0] for name, _ in model.named_parameters()}
    assert with_weights <= {tensor.layer for tensor in trace.tensors}


@pytest.mark.parametrize("name", PROGRAMS)
def test_policies_plan_for_it_and_the_plans_replay_to_the_bit(tmp_path, program, name):
    model, step = PROGRAMS[name]()
    captured(tmp_path, step, model=model)
    file = str(tmp_path / "net.jsonl")
    assert "lawful" in program("check", file)
    for policy in ("recorded", "liveness", "recompute", "liveness+offload"):
        out = program("replay", file, "--policy", policy, "--budget", "1GiB", "--on", "host")
        assert "equal" in out and "not equal" not in out


def test_forward_and_backward_of_a_module_have_its_path(tmp_path):
    model, step = made(Block)
    trace, _, _ = captured(tmp_path, step)  # of a model that is not given
    backward = [op for op in trace.ops if op.phase == "backward" and op.kind == "aten::mm"]
    assert {op.layer for op in backward} >= {"block.linear1", "block.linear2", "head"}
    norm = [op for op in trace.ops if "layer_norm" in op.kind]
    assert [op.layer for op in norm if op.phase == "forward"] == ["block.norm1", "block.norm2"]
    assert [op.layer for op in norm if op.phase == "backward"] == ["block.norm2", "block.norm1"]


@pytest.mark.parametrize("foreach", [False, True])
def test_a_multi_tensor_update_is_one_op_per_tensor(tmp_path, foreach):
    model, _ = made(ConvNet)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=foreach)
    trace, _, _ = captured(tmp_path, training(model, optimizer))
    updates = [op for op in trace.ops if op.phase == "update" and "add" in op.kind]
    groups = {op.launch_group for op in updates}
    assert len(updates) == 2 * 6 and (groups != {-1}) == foreach
    written = {trace.tensors[a.tensor].name for op in updates for a in op.writes}
    assert written >= {name for name, _ in model.named_parameters()}


def test_a_fused_update_is_separable_too(tmp_path):
    model, _ = made(Mlp)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
    trace, _, _ = captured(tmp_path, training(model, optimizer))
    updates = [op for op in trace.ops if "_fused_adamw_" in op.kind]
    assert len(updates) == 4 and len({op.launch_group for op in updates}) == 1
    for op in updates:
        roles = sorted(trace.tensors[access.tensor].role for access in op.writes)
        assert roles.count("optimizer_state") in (2, 3) and roles.count("parameter") == 1


def test_gradients_of_micro_batches_are_added_up_in_one_storage(tmp_path):
    model, step = made(Mlp, micro_batches=3)
    trace, _, _ = captured(tmp_path, step)
    assert sorted({op.micro_batch for op in trace.ops}) == [0, 1, 2]
    sums = [op for op in trace.ops if op.kind == "aten::add_" and op.phase == "backward"]
    assert len(sums) == 2 * 4
    assert {trace.tensors[op.writes[0].tensor].role for op in sums} == {"gradient"}
    assert {op.layer for op in sums} == {"0", "2"}


def test_what_checkpointing_makes_again_is_recompute_and_can_be_stripped(tmp_path):
    plain, _, _ = captured(tmp_path, made(lambda: Checkpointed(False))[1], "plain.jsonl")
    for reentrant in (False, True):
        step = made(lambda: Checkpointed(reentrant=reentrant))[1]
        trace, _, _ = captured(tmp_path, step, "checkpointed.jsonl")
        again = [op for op in trace.ops if op.phase == "recompute"]
        assert {op.layer.partition(".")[0] for op in again} == {"blocks"} and len(again) >= 6
        step = made(lambda: Checkpointed(reentrant=reentrant))[1]
        stripped, report, _ = captured(tmp_path, step, "s.jsonl", strip_recompute=True)
        assert not any("recompute ops" in warning for warning in report.warnings)
        kinds = [(op.kind, op.phase, op.layer) for op in stripped.ops]
        assert kinds == [(op.kind, op.phase, op.layer) for op in plain.ops]
        sizes = [(t.bytes, t.freed_before) for t in stripped.tensors if t.role == "activation"]
        assert sizes == [(t.bytes, t.freed_before) for t in plain.tensors if t.role == "activation"]


def test_casts_of_autocast_live_until_it_ends(tmp_path):
    model, step = made(Mlp, autocast=True)
    trace, _, _ = captured(tmp_path, step)
    forward = [op for op in trace.ops if op.phase == "forward"]
    casts = {a.tensor for op in forward if op.kind == "aten::_to_copy" for a in op.writes}
    weights = [trace.tensors[i] for i in casts if trace.tensors[i].shape == [16, 8]]
    assert [tensor.dtype for tensor in weights] == ["bf16"]
    last = max(i for i, op in enumerate(trace.ops) if op.phase == "backward")
    assert weights[0].freed_before <= last


def test_a_tensor_that_looks_elsewhere_writes_nothing(tmp_path):
    """As torch.nn.LSTM does with its flat weights on a GPU."""
    model, step = made(Mlp)
    weight = next(model.parameters())
    seen = []

    def with_set():
        with torch.no_grad():
            flat = torch.empty(0)
            flat.set_(weight.untyped_storage(), 0, (weight.numel(),))
            seen.append(flat.mul(2.0))
            weight.detach().t_()
        return step()

    trace, report, _ = captured(tmp_path, with_set)
    assert report.warnings == []
    assert not {"aten::set_", "aten::t_"} & {op.kind for op in trace.ops}
    first = next(op for op in trace.ops if op.kind == "aten::mul")
    assert [trace.tensors[access.tensor].role for access in first.reads] == ["parameter"]


def test_a_storage_that_dies_inside_an_op_is_freed_after_it(tmp_path):
    from torch import library as torch_library

    library = torch_library.Library("superneurons_tests", "FRAGMENT")
    library.define("swap(Tensor(a!) x, Tensor y) -> ()")
    library.impl("swap", lambda x, y: None if x.set_(y.clone()) is x else None, "CPU")
    model, step = made(Mlp)

    def with_swap():
        torch.ops.superneurons_tests.swap(torch.ones(64), torch.ones(32))
        return step()

    trace, report, _ = captured(tmp_path, with_swap)
    assert report.warnings == [] and trace.capabilities["frees"] == "exact"
    place = next(i for i, op in enumerate(trace.ops) if "swap" in op.kind)
    freed = {trace.tensors[access.tensor].freed_before for access in trace.ops[place].reads}
    assert freed == {place + 1}
    assert [trace.tensors[access.tensor].bytes for access in trace.ops[place].writes] == [128]


def test_saved_tensors_on_the_host_give_the_same_trace(tmp_path):
    plain, _, alone = captured(tmp_path, made(Block)[1], "plain.jsonl")
    trace, report, losses = captured(tmp_path, made(Block)[1], "offload.jsonl", offload=True)
    assert losses == alone and report.warnings == []
    assert [(op.kind, op.phase, op.layer) for op in trace.ops] == [
        (op.kind, op.phase, op.layer) for op in plain.ops
    ]
    accesses = [[op.reads, op.writes] for op in trace.ops]
    assert accesses == [[op.reads, op.writes] for op in plain.ops]
    assert [t.freed_before for t in trace.tensors] == [t.freed_before for t in plain.tensors]
    assert trace.step_ns_untraced == 0  # it was another program


def test_two_optimizers_make_one_training_step(tmp_path):
    torch.manual_seed(1)
    first, second = Mlp(), torch.nn.Linear(10, 10)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (first, second)]
    data = Mlp.data()

    def step():
        for optimizer in optimizers:
            optimizer.zero_grad()
            loss = second(first(data)).square().mean()
            loss.backward()
            optimizer.step()
        return loss.detach()

    trace, _, _ = captured(tmp_path, step, steps=2)
    updated = {a.tensor for op in trace.ops if op.phase == "update" for a in op.writes}
    names = {trace.tensors[i].name for i in updated}
    assert names == {"Mlp.0.weight", "Mlp.0.bias", "Mlp.2.weight", "Mlp.2.bias",
                     "Linear.weight", "Linear.bias"}  # fmt: skip


def test_steps_can_be_marked_where_there_is_no_optimizer(tmp_path):
    torch.manual_seed(1)
    weight = torch.randn(8, 8, requires_grad=True)
    data = torch.randn(4, 8)

    def step():
        loss = (data @ weight).square().mean()
        loss.backward()
        with torch.no_grad():
            weight.sub_(weight.grad, alpha=0.1)
        weight.grad = None
        superneurons.training_step()
        return loss.detach()

    trace, _, _ = captured(tmp_path, step)
    kinds = [op.kind for op in trace.ops]
    assert kinds.count("aten::mm") == 2 and "aten::sub_" in kinds
    superneurons.training_step()  # and does nothing without a capture


def test_too_few_training_steps_are_said_and_the_program_goes_on(tmp_path, capsys):
    _, step = made(Mlp)
    with superneurons.capture(str(tmp_path / "t.jsonl"), warmup=5) as capture:
        step()
    assert capture.report is None and "ended after 1 training steps" in capture.problem
    with pytest.raises(ZeroDivisionError):
        with superneurons.capture(str(tmp_path / "t.jsonl"), warmup=5):
            step()
            raise ZeroDivisionError
    assert os.listdir(tmp_path) == []
    assert (
        capsys.readouterr().err.count("nothing was captured: the `with` block ended after 1") == 2
    )


@pytest.mark.parametrize(
    ("place", "why"), [("none/t.jsonl", "there is no folder"), (".", "a folder")]
)
def test_where_no_trace_can_be_written_is_known_before_any_training(tmp_path, place, why):
    with pytest.raises(BadInput, match=why):
        superneurons.capture(str(tmp_path / place))


def test_less_than_was_asked_for_is_said(tmp_path):
    for ran, said in [
        (2, "training step 1 of 3 is the last that was watched to its end"),
        (5, "1 of 4 untouched training steps were timed"),
        (4, "the time and the peaks of an untouched training step are not known"),
    ]:
        _, step = made(Mlp)
        path = str(tmp_path / "t.jsonl")
        with superneurons.capture(path, warmup=1, steps=3, untouched=4) as capture:
            for _ in range(ran):
                step()
        assert any(said in each for each in capture.report.warnings)
        assert "the `with` block ended" in capture.report.warnings[0]


def test_a_failure_of_the_conversion_keeps_what_it_was_made_from(tmp_path, capsys, monkeypatch):
    from superneurons import context

    def broken(*_, **__):
        raise RuntimeError("broken")

    _, step = made(Mlp)
    with monkeypatch.context() as patch:
        patch.setattr(context, "convert", broken)
        with superneurons.capture(str(tmp_path / "t.jsonl"), warmup=1, steps=1, untouched=0):
            [step() for _ in range(3)]
    said = capsys.readouterr().err
    assert "t.jsonl: no trace (RuntimeError: broken)" in said
    folder = re.search(r"is kept in (\S+): `python -m superneurons.convert (\S+) -o (\S+)`", said)
    assert folder[1] == folder[2] and folder[3] == str(tmp_path / "t.jsonl")
    convert_all(folder[1], folder[3])
    shutil.rmtree(folder[1])
    assert read_trace(folder[3]).ops


def test_a_profiler_that_is_active_wins(tmp_path, capsys):
    _, step = made(Mlp)
    with torch.profiler.profile():
        with superneurons.capture(str(tmp_path / "t.jsonl"), warmup=1) as capture:
            [step() for _ in range(3)]
    assert "torch.profiler is active" in capture.problem and os.listdir(tmp_path) == []
    assert capsys.readouterr().err.count("not captured: torch.profiler is active") == 1


@pytest.mark.parametrize("late", [False, True])
def test_compiled_functions_run_as_written_and_compiled_again_afterwards(tmp_path, late):
    compiled = []

    def backend(graph, inputs):
        compiled.append(graph)
        return graph

    model, _ = made(Mlp)
    if not late:
        model = torch.compile(model, backend=backend)
        model(Mlp.data())
    seen = len(compiled)
    with superneurons.capture(str(tmp_path / "t.jsonl"), warmup=1, untouched=1) as capture:
        if late:
            model = torch.compile(model, backend=backend, fullgraph=True)
        step = training(model)
        [step() for _ in range(5)]
    assert len(compiled) == seen
    assert [each for each in capture.report.warnings if "torch.compile was off" in each]
    assert {op.layer for op in capture.report.trace.ops if op.kind == "aten::addmm"} == {"0", "2"}
    assert {t.layer for t in capture.report.trace.tensors if t.role == "parameter"} == {"0", "2"}
    torch._dynamo.reset()
    model(Mlp.data())
    assert len(compiled) == seen + 1


def test_nothing_is_left_behind_in_pytorch(tmp_path):
    _, step = made(ConvNet)
    captured(tmp_path, step)
    assert torch.utils._python_dispatch._len_torch_dispatch_stack() == 0
    module = torch.nn.modules.module
    assert not module._global_forward_hooks and not module._global_forward_pre_hooks
    optimizer = importlib.import_module("torch.optim.optimizer")
    assert not optimizer._global_optimizer_post_hooks and not optimizer._global_optimizer_pre_hooks


def test_packed_files_have_all_records(tmp_path):
    _, step = made(Mlp)
    trace, _, _ = captured(tmp_path, step, "net.jsonl.gz", batch=4, name="mlp")
    assert (trace.batch, trace.name, trace.device) == (4, "mlp", "cpu")
    lines = gzip.decompress((tmp_path / "net.jsonl.gz").read_bytes()).count(b"\n")
    assert lines == len(trace.tensors) + len(trace.ops) + len(trace.carry) + 2


def test_compiled_functions_are_only_known_on_a_gpu(tmp_path, capsys):
    _, step = made(Mlp)
    with superneurons.capture(str(tmp_path / "t.jsonl"), warmup=1, compiled=True) as capture:
        [step() for _ in range(3)]
    assert "no CUDA device is used (--compiled)" in capture.problem
    with pytest.raises(ValueError, match="compiled goes with neither"):
        superneurons.capture(str(tmp_path / "t.jsonl"), compiled=True, offload=True)


class FakeCollector:
    """In the place of the library: each wait for the device is a call in the log, 1 us after it
    began here."""

    def __init__(self, path):
        self.rows, self.base = [], 0

    def start_into(self, path):
        self.path, self.base = path, time.time_ns()
        return ""

    def wait(self):
        now = time.time_ns() - self.base
        if self.base:
            self.rows.append({"r": "call", "name": 0, "call": len(self.rows), "thread": 1, "start": now + 1000,
                              "end": now + 2000})  # fmt: skip
        time.sleep(1e-5)

    def stop(self, path):
        head = {"r": "header", "format": "superneurons-activities", "version": "0.1"}
        names = [{"r": "name", "id": i, "text": text} for i, text in enumerate(
            ["cudaDeviceSynchronize", "cudaLaunchKernel", "fused"])]  # fmt: skip
        rows = []
        for call, wait in ((998, 7), (999, 16)):  # the last before the steps
            at = self.rows[wait]["end"] + 50_000
            rows += [
                {"r": "call", "name": 1, "call": call, "thread": 1, "start": at, "end": at + 9},
                {"r": "kernel", "name": 2, "call": call, "stream": 7, "start": at, "end": at + 50},
            ]
        with open(self.path, "w") as file:
            for row in [
                head,
                *names,
                *self.rows,
                *rows,
                {"r": "end", "activities": 2, "dropped": 0},
            ]:
                file.write(json.dumps(row) + "\n")
        return True


def test_what_is_written_of_compiled_training_steps_becomes_a_trace(tmp_path, program, monkeypatch):
    from superneurons import session

    collectors = []

    def collector(path):
        collectors.append(FakeCollector(path))
        return collectors[0]

    def snapshot():
        block = {"size": 1000, "state": "active_allocated"}
        free = {"size": 1 << 20, "state": "inactive"}
        segment = {"address": 1 << 20, "total_size": 2 << 20, "blocks": [block, free]}
        return {"segments": [segment], "device_traces": [[]]}

    cuda = torch.cuda
    monkeypatch.setattr(session, "Collector", collector)
    for name in ("is_available", "is_initialized"):
        monkeypatch.setattr(cuda, name, lambda: True)
    for name, value in (("get_device_name", "Toy"), ("memory_allocated", 1024)):
        monkeypatch.setattr(cuda, name, lambda value=value: value)
    monkeypatch.setattr(cuda, "synchronize", lambda: collectors and collectors[0].wait())
    monkeypatch.setattr(cuda.memory, "_snapshot", snapshot)
    monkeypatch.setattr(cuda.memory, "_record_memory_history", lambda *_, **__: None)
    monkeypatch.setattr(torch._C, "_cuda_setMemoryMetadata", lambda text: None, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_isHistoryEnabled", lambda: False, raising=False)
    _, step = made(Mlp)
    file = str(tmp_path / "t.jsonl")
    with superneurons.capture(
        file, warmup=1, steps=2, untouched=0, compiled=True, library="x"
    ) as capture:
        [step() for _ in range(4)]
    assert capture.problem == "" and capture.report.warnings == []
    assert [op.kernels for op in read_trace(file).ops] == [[("fused", 50)]]
    assert [tensor.bytes for tensor in read_trace(file).tensors] == [1024]
