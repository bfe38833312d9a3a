"""The PyTorch capture on the CPU: what it writes is a lawful trace."""

import gzip

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from superneurons.capture import capture  # noqa: E402
from superneurons.traces import read_trace  # noqa: E402


@pytest.mark.parametrize("foreach", [False, True])
def test_a_small_network_is_captured_as_a_lawful_trace(tmp_path, foreach):
    torch.manual_seed(1)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3),
        torch.nn.BatchNorm2d(4),
        torch.nn.ReLU(inplace=True),
        torch.nn.Flatten(),
        torch.nn.Linear(4 * 6 * 6, 10),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=foreach)
    data, labels = torch.randn(2, 3, 8, 8), torch.tensor([1, 2])

    def training_step():
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(model(data), labels).backward()
        optimizer.step()

    file = str(tmp_path / "net.jsonl.gz")
    summary = capture(
        training_step,
        model,
        optimizer,
        file,
        traced=1,
        untraced=1,
        name="net",
        device="cpu",
        batch=2,
    )
    trace = read_trace(file)
    assert summary["ops"] == len(trace.ops) and trace.batch == 2
    assert {op.phase for op in trace.ops} == {"forward", "backward", "update"}
    parameters = sum(p.numel() * 4 for p in model.parameters())
    for role, wanted in (("parameter", parameters), ("optimizer_state", parameters)):
        assert sum(tensor.bytes for tensor in trace.tensors if tensor.role == role) == wanted
    assert (
        gzip.decompress(open(file, "rb").read()).count(b"\n")
        == len(trace.tensors) + len(trace.ops) + len(trace.carry) + 2
    )
