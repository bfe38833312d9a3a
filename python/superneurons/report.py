"""What became of a raw capture, for people."""

from __future__ import annotations

from dataclasses import dataclass, field

from superneurons.files import format_bytes, format_time
from superneurons.memory_history import rounded
from superneurons.steps import Step
from superneurons.traces import Trace

LEAST_SLOWDOWN = 0.95  # watching makes nothing faster; as in tracer/quality.h


@dataclass
class Report:
    """What became of a raw capture."""

    path: str
    trace: Trace
    rebuilt_peak: int  # bytes, of tensors and workspaces, in pieces of 512
    allocated_peak: int = 0  # bytes, by PyTorch's allocator in an untouched training step
    owned: float = 0.0  # share of the kernels' time that belongs to ops; 0: not measured
    warnings: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """For people."""
        trace = self.trace
        first = f"{self.path}: {len(trace.ops)} ops, {len(trace.tensors)} tensors"
        if trace.step_ns_untraced:
            slower = trace.step_ns_traced / trace.step_ns_untraced
            first += f", training step {format_time(trace.step_ns_untraced)} untouched"
            first += f", {format_time(trace.step_ns_traced)} watched ({slower:.2f}x)"
        lines = [first]
        if self.allocated_peak:
            error = 100 * (self.rebuilt_peak / self.allocated_peak - 1)
            lines.append(
                f"peak {format_bytes(self.rebuilt_peak)} from the trace, "
                f"{format_bytes(self.allocated_peak)} by the allocator ({error:+.2f} %)"
            )
        if self.owned:
            lines.append(
                f"{100 * self.owned:.2f} % of the kernels' time belongs to ops, "
                f"{trace.dropped_records} dropped records"
            )
        warnings = list(self.warnings)
        if 0 < trace.step_ns_traced < LEAST_SLOWDOWN * trace.step_ns_untraced:
            warnings.append(
                "the untouched training steps took longer than the watched ones: they were probably "
                "disturbed (would be captured anew on an idle machine)"
            )
        return lines + ["warning: " + text for text in warnings]


def rebuilt_peak(step: Step) -> int:
    """Most bytes of storages alive at one time, with workspaces."""
    delta = [0] * (len(step.ops) + 1)
    for storage in step.storages:
        size = rounded(storage.bytes)
        begin = 0 if storage.alive_at_start else min(max(storage.born, 0), len(step.ops))
        delta[begin] += size
        if storage.freed_before is not None:
            delta[max(storage.freed_before, begin)] -= size
    live = peak = 0
    for index, op in enumerate(step.ops):
        live += delta[index]
        peak = max(peak, live + op.workspace)
    return peak
