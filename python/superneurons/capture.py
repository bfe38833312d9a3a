"""Thin capture of one PyTorch training step as a trace (traces/FORMAT.md).

    from superneurons.capture import capture
    capture(training_step, model, optimizer, "resnet50.jsonl.gz",
            library="build/libsuperneurons_cupti.so")

`training_step()` runs one whole training step: zero_grad, forward, backward, optimizer.step. Order,
accesses and frees come from one traced step, durations from CUPTI over several, the training step's
time from untouched steps. State that is a new storage each step is carried from the old one to the
new one; what could not be matched is reported, and makes the capability `accesses` inferred.
"""

from __future__ import annotations

import ctypes
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from superneurons.convert import durations_of, rebuilt_peak, trace_of
from superneurons.dispatch import Layers, Mode, State
from superneurons.traces import write_trace


class _Library:
    """The CUPTI collector, or nothing where it is not given (then durations are not measured)."""

    def __init__(self, path: str | None) -> None:
        self._lib = ctypes.CDLL(path) if path else None

    def start(self) -> None:
        if self._lib is None:
            return
        error = ctypes.create_string_buffer(512)
        if self._lib.superneurons_trace_start(error, ctypes.c_size_t(512)) != 0:
            raise RuntimeError("not traced: " + error.value.decode())

    def push(self, tag: int) -> None:
        if self._lib is not None:
            self._lib.superneurons_tag_push(ctypes.c_uint64(tag))

    def pop(self) -> None:
        if self._lib is not None:
            self._lib.superneurons_tag_pop()

    def stop(self) -> tuple[list[dict[str, Any]], int]:
        """Device activities with their tags, and how many records were dropped."""
        if self._lib is None:
            return [], 0
        handle, path = tempfile.mkstemp(suffix=".jsonl")
        os.close(handle)
        try:
            if self._lib.superneurons_trace_stop(path.encode()) != 0:
                raise RuntimeError("the activity log could not be written")
            with open(path, encoding="utf-8", errors="replace") as file:
                rows = [json.loads(line) for line in file]
        finally:
            os.unlink(path)
        return rows[:-1], rows[-1]["dropped"]


def _state(model: torch.nn.Module, optimizer: torch.optim.Optimizer | None) -> Iterator[State]:
    """Tensors that outlive the step and have a name; of two names of a storage the later gives the
    role."""
    for name, parameter in model.named_parameters():
        layer = name.rpartition(".")[0]
        if parameter.grad is not None:
            yield State("gradient", name, layer, parameter.grad)
        yield State("parameter", name, layer, parameter)
    for name, buffer in model.named_buffers():
        yield State("buffer", name, name.rpartition(".")[0], buffer)
    if optimizer is None:
        return
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for position, parameter in enumerate(parameters):
        for key, value in optimizer.state.get(parameter, {}).items():
            if isinstance(value, torch.Tensor):
                yield State("optimizer_state", f"{position}.{key}", "", value)


def _timed(training_step: Callable[[], object], steps: int, sync: Callable[[], None]) -> list[int]:
    times = []
    for _ in range(steps):
        begin = time.perf_counter_ns()
        training_step()
        sync()
        times.append(time.perf_counter_ns() - begin)
    return times


def capture(
    training_step: Callable[[], object],
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer | None,
    path: str,
    library: str | None = None,
    warmup: int = 3,
    traced: int = 3,
    untraced: int = 10,
    name: str = "pytorch",
    batch: int = 0,
    device: str = "cuda",
) -> dict[str, Any]:
    """Records training_step() into a trace file and returns a summary (peaks, times, share of
    kernel time, state that was not matched). At least two traced steps match state that only
    variables of Python hold."""
    sync = torch.cuda.synchronize if device == "cuda" else (lambda: None)
    cupti = _Library(library if device == "cuda" else None)
    _timed(training_step, warmup, sync)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    times = _timed(training_step, untraced, sync)
    peak = torch.cuda.max_memory_allocated() if device == "cuda" else 0

    mode, traced_times, rows, dropped = _traced(
        training_step, model, optimizer, cupti, traced, device, sync
    )
    durations = durations_of(rows, traced, dropped)
    trace, carries = trace_of(mode, durations, name)
    trace.origin = f"superneurons.capture, torch {torch.__version__}"
    if rows:
        trace.origin += f"; {durations.losses()}"
    trace.device = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    trace.batch = batch
    trace.step_ns_untraced = int(statistics.median(times))
    trace.step_ns_traced = int(statistics.median(traced_times))
    trace.dropped_records = dropped
    if device == "cuda":
        trace.capabilities["workspaces"] = "exact"
    write_trace(trace, path)
    whole = durations.owned_ns + durations.orphan_ns
    return {
        "ops": len(mode.ops),
        "storages": len(mode.storages),
        "dropped": dropped,
        "losses": durations.losses(),
        "step_ns_untraced": trace.step_ns_untraced,
        "step_ns_traced": trace.step_ns_traced,
        "torch_peak": peak,
        "rebuilt_peak": rebuilt_peak(mode),
        "owned_kernel_share": durations.owned_ns / whole if whole else 0.0,
        "carried_on": len(carries.ends),
        "carried_by_copy": len(carries.copied),
        "unmatched": [
            f"storage of {s.bytes} bytes, shape {s.shape}: read before it is written, gone at the "
            "end of the step"
            for s in carries.unmatched
        ],
    }


def _traced(
    training_step: Callable[[], object],
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer | None,
    cupti: _Library,
    steps: int,
    device: str,
    sync: Callable[[], None],
) -> tuple[Mode, list[int], list[dict[str, Any]], int]:
    """The mode of the last traced step, with what stood around it."""
    layers = Layers(model)
    mode: Mode | None = None

    def in_update(value: bool) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            if mode is not None:
                mode.in_update = value

        return hook

    hooks = []
    if optimizer is not None:
        hooks.append(optimizer.register_step_pre_hook(in_update(True)))
        hooks.append(optimizer.register_step_post_hook(in_update(False)))
    times: list[int] = []
    cupti.start()
    try:
        for step in range(steps):
            mode = Mode(layers, cupti, step, device, mode)
            mode.expect(_state(model, optimizer))
            begin = time.perf_counter_ns()
            with mode:
                training_step()
            sync()
            times.append(time.perf_counter_ns() - begin)
            mode.finish(_state(model, optimizer))
    finally:
        rows, dropped = cupti.stop()
        layers.close()
        for handle in hooks:
            handle.remove()
    assert mode is not None
    return mode, times, rows, dropped
