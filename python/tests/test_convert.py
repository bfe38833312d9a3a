"""The PyTorch capture of state that is a new storage each step, and of incomplete recordings."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from superneurons.capture import capture  # noqa: E402
from superneurons.convert import durations_of  # noqa: E402
from superneurons.files import BadInput  # noqa: E402
from superneurons.traces import read_trace  # noqa: E402


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
        self.register_buffer("ema", torch.zeros(8))

    def forward(self, x):
        return self.linear(x)


class Momentum(torch.optim.Optimizer):
    """Makes new momentum each step instead of changing the old one."""

    def __init__(self, parameters):
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                old = self.state[p].get("m", torch.zeros_like(p))
                self.state[p]["m"] = 0.9 * old + p.grad
                p -= 0.1 * self.state[p]["m"]


def captured(tmp_path, after=lambda model, output: None, optimizer=None, traced=2, layers=Net):
    torch.manual_seed(1)
    model = layers()
    optimizer = (optimizer or (lambda p: torch.optim.SGD(p, lr=0.1)))(model.parameters())
    data = torch.randn(4, 8)

    def training_step():
        optimizer.zero_grad(set_to_none=True)
        output = model(data)
        output.sum().backward()
        optimizer.step()
        with torch.no_grad():
            after(model, output)

    file = str(tmp_path / "net.jsonl")
    summary = capture(
        training_step, model, optimizer, file, warmup=2, traced=traced, untraced=1, device="cpu"
    )
    return read_trace(file), summary, file


def moved(trace):
    return [(trace.tensors[c.start], trace.tensors[c.end]) for c in trace.carry if c.start != c.end]


def average(model, output):
    model.ema = 0.9 * model.ema + 0.1 * output[0]


def test_a_buffer_that_is_replaced_is_carried_from_the_old_to_the_new(tmp_path):
    trace, summary, _ = captured(tmp_path, average)
    assert [(start.role, end.role) for start, end in moved(trace)] == [("buffer", "buffer")]
    (start, end), = moved(trace)
    assert start.bytes == end.bytes == 32 and start.freed_before is not None
    assert summary["carried_on"] == 1 and summary["unmatched"] == []
    assert trace.capabilities["accesses"] == "exact"


def test_optimizer_state_that_is_replaced_is_carried_by_parameter_and_key(tmp_path):
    trace, summary, _ = captured(tmp_path, optimizer=Momentum)
    assert sorted(start.bytes for start, _ in moved(trace)) == [32, 256]
    assert {(s.role, e.role) for s, e in moved(trace)} == {("optimizer_state", "optimizer_state")}
    assert summary["unmatched"] == []


def test_a_value_that_its_heir_reads_while_it_is_made_is_copied_home(tmp_path):
    def replace_weight(model, output):
        model.linear.weight = torch.nn.Parameter(model.linear.weight - 0.01)

    trace, summary, _ = captured(tmp_path, replace_weight)
    assert summary["carried_by_copy"] == 1 and moved(trace) == []
    assert trace.ops[-1].kind == "superneurons::carry"
    assert trace.tensors[trace.ops[-1].writes[0].tensor].role == "parameter"
    assert trace.capabilities["accesses"] == "inferred"


def variable():
    held = {"ema": torch.zeros(8)}

    def after(model, output):
        held["ema"] = 0.9 * held["ema"] + 0.1 * output[0]

    return after


def test_what_only_a_variable_holds_is_carried_by_its_storage(tmp_path):
    trace, summary, _ = captured(tmp_path, variable(), traced=2)
    assert len(moved(trace)) == 1 and summary["unmatched"] == []
    assert trace.capabilities["accesses"] == "exact"


def test_what_cannot_be_matched_is_reported_and_makes_accesses_inferred(tmp_path):
    trace, summary, _ = captured(tmp_path, variable(), traced=1)
    assert moved(trace) == [] and len(summary["unmatched"]) == 1
    assert "32 bytes" in summary["unmatched"][0]
    assert trace.capabilities["accesses"] == "inferred"


@pytest.mark.parametrize("after", [average, variable()], ids=["buffer", "variable"])
def test_the_program_replays_it_to_the_bit(tmp_path, program, after):
    _, _, file = captured(tmp_path, after, optimizer=Momentum)
    for policy in ("keep_all", "recorded", "liveness", "liveness+offload"):
        out = program(
            "replay", file, "--policy", policy, "--budget", "1MiB", "--on", "host"
        )
        assert "equal" in out and "not equal" not in out


def test_the_file_is_the_canonical_text_and_is_not_left_half_written(tmp_path, canonical):
    _, _, file = captured(tmp_path)
    assert canonical(file) == open(file, "rb").read()
    with pytest.raises(BadInput, match="cannot be written"):
        captured(tmp_path / "none")
    assert [entry.name for entry in tmp_path.iterdir() if entry.name != "sent"] == ["net.jsonl"]


def row(step, call, start, end, name="k"):
    tag = (step + 1) << 32 | call if step >= 0 else -1
    return {"tag": tag, "name": name, "start": start, "end": end}


def test_durations_are_medians_over_the_steps_in_which_a_call_was_seen():
    rows = [row(2, 5, 300, 330), row(0, 5, 0, 10), row(0, 5, 15, 40, "second"), row(0, 6, 50, 60)]
    rows += [row(1, 6, 150, 170), row(2, 6, 350, 380), row(-1, 0, 400, 407)]
    found = durations_of(rows, 3, 0)
    assert found.ns == {5: 30, 6: 20}  # of 30 and 40 the lower; a step without records is no 0
    assert found.kernels[5] == [("k", 30)]
    assert (found.orphans, found.orphan_ns, found.incomplete) == (1, 7, 1)
    assert found.capability == "inferred"
    assert found.losses() == (
        "1 device activities (7 ns) of no op, 1 ops not seen in every training step"
    )


def test_whole_recordings_are_exact_and_those_with_dropped_records_are_not():
    rows = [row(0, 1, 0, 9), row(1, 1, 20, 28)]
    assert durations_of(rows, 2, 0).capability == "exact"
    assert durations_of(rows, 2, 1).capability == "inferred"
    assert durations_of([], 2, 0).capability == "none"
