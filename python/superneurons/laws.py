"""The laws of a trace (traces/FORMAT.md): what its reader and writer hold it against."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from superneurons.traces import Access, Op, Trace

LARGEST = 1 << 62  # sums of bytes stay below
LONGEST = 1 << 58  # sums of times, in ns
_KEPT = ("parameter", "buffer", "optimizer_state")  # roles whose values outlive the training step


@dataclass(frozen=True)
class Fault:
    """The first law that a trace breaks, and the record that breaks it."""

    record: str  # header, tensor, op, carry
    index: int
    message: str


class _Found(Exception):
    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


@dataclass
class _State:
    """What is known of a tensor on the way through the ops."""

    alive_at_start: bool = False
    written: bool = False
    needed_at_start: bool = False
    successor: int = -1  # of the end of a carry of two tensors: its start
    closed_by: int = -1  # of such a start: the op that first writes its end
    listed_by: int = -1  # last op that lists it among its writes


def find_fault(trace: Trace) -> Fault | None:
    """The first law broken, or None. Linear in the number of accesses."""
    try:
        _Finder(trace).find()
    except _Found as found:
        return found.fault
    return None


class _Finder:
    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.states = [_State() for _ in trace.tensors]
        self.sums = {"bytes": 0, "ns": 0, "moved": 0}
        self.record, self.index, self.subject = "header", 0, ""

    def find(self) -> None:
        self.header()
        self.tensors()
        self.carries()
        self.ops()
        for i, carry in enumerate(self.trace.carry):
            end = self.states[carry.end]
            self.at("carry", i)
            self.law(
                end.alive_at_start or end.written,
                f"ends with {self.name(carry.end)}, which no op writes",
            )

    def at(self, record: str, index: int, name: str | None = None) -> None:
        self.record, self.index = record, index
        self.subject = f"{record} {index} " + (f'"{name}" ' if name is not None else "")

    def law(self, holds: bool, message: str) -> None:
        if not holds:
            raise _Found(Fault(self.record, self.index, self.subject + message))

    def add(self, what: str, number: int, message: str) -> None:
        limit = LONGEST if what == "ns" else LARGEST
        self.law(0 <= number < limit - self.sums[what], message)
        self.sums[what] += number

    def name(self, tensor: int) -> str:
        return f'"{self.trace.tensors[tensor].name}"'

    def header(self) -> None:
        self.law(self.trace.batch >= 0, "the batch is negative")
        self.law(self.trace.dropped_records >= 0, "the number of dropped records is negative")
        for ns in (self.trace.step_ns_untraced, self.trace.step_ns_traced):
            self.add("ns", ns, "the time of the training step is negative or too large")
        for ns in (self.trace.owned_ns, self.trace.orphan_ns):
            self.add("ns", ns, "the device time of the recording is negative or too large")
        self.law(self.trace.orphans >= 0, "the number of orphans is negative")
        for peak in (self.trace.allocated_peak, self.trace.reserved_peak):
            self.law(
                0 <= peak < LARGEST, "a peak of the program's allocator is negative or too large"
            )

    def tensors(self) -> None:
        names: set[str] = set()
        for i, tensor in enumerate(self.trace.tensors):
            self.at("tensor", i, tensor.name)
            self.law(tensor.name != "", "has no name")
            self.law(tensor.name not in names, "has the name of an earlier tensor")
            names.add(tensor.name)
            too_large = (
                f"has {tensor.bytes} bytes (would be above 0, and all sizes below 2^62 together)"
            )
            self.law(tensor.bytes > 0, too_large)
            self.add("bytes", tensor.bytes, too_large)
            self.law(
                all(extent >= 0 for extent in tensor.shape), "has a negative extent in its shape"
            )
            if tensor.freed_before is not None:
                self.law(
                    tensor.freed_before <= len(self.trace.ops),
                    f"is freed before op {tensor.freed_before} of {len(self.trace.ops)}",
                )
            self.law(_is_measure(tensor.init_scale), "has an init_scale that is no size")

    def carries(self) -> None:
        starts: set[int] = set()
        ends: set[int] = set()
        for i, carry in enumerate(self.trace.carry):
            self.at("carry", i)
            for tensor in (carry.start, carry.end):
                self.law(tensor < len(self.states), f"names tensor {self.unknown(tensor)}")
            self.law(
                carry.start not in starts,
                f"starts with {self.name(carry.start)}, as an earlier one does",
            )
            self.law(
                carry.end not in ends, f"ends with {self.name(carry.end)}, as an earlier one does"
            )
            start, end = self.trace.tensors[carry.start], self.trace.tensors[carry.end]
            self.law(
                start.bytes == end.bytes,
                "is of two tensors of different sizes, "
                f"{self.name(carry.end)} and {self.name(carry.start)}",
            )
            self.law(
                end.freed_before is None,
                f"ends with {self.name(carry.end)}, which the program freed",
            )
            starts.add(carry.start)
            ends.add(carry.end)
            self.states[carry.start].alive_at_start = True
            if carry.start != carry.end:
                self.states[carry.end].successor = carry.start
                self.states[carry.start].needed_at_start = start.role in _KEPT

    def unknown(self, tensor: int) -> str:
        return f"{tensor}, of which there is none (tensors: {len(self.states)})"

    def ops(self) -> None:
        names: set[str] = set()
        for i, op in enumerate(self.trace.ops):
            self.at("op", i, op.name)
            self.law(op.name not in names, "has the name of an earlier op")
            names.add(op.name)
            self.accesses(op)
            self.choices(op)
            self.numbers(op)

    def accesses(self, op: Op) -> None:
        # First the writes, without their effect: what closes the start of a carry closes it for the
        # reads of this very op.
        for write in op.writes:
            self.in_range(write)
            state = self.states[write.tensor]
            self.law(
                state.listed_by != self.index,
                f"lists {self.name(write.tensor)} twice among its writes",
            )
            state.listed_by = self.index
            if state.successor >= 0 and self.states[state.successor].closed_by < 0:
                self.states[state.successor].closed_by = self.index
        for read in op.reads:
            self.in_range(read)
            state = self.states[read.tensor]
            self.law(
                state.written or state.alive_at_start,
                f"reads {self.name(read.tensor)} before it was "
                "written (would be carried in, or written by an earlier op)",
            )
            self.needs(read.tensor)
        for write in op.writes:
            state = self.states[write.tensor]
            covers = write.offset == 0 and write.length == self.trace.tensors[write.tensor].bytes
            if not covers and (state.written or state.alive_at_start):
                self.needs(write.tensor)
        for write in op.writes:
            self.states[write.tensor].written = True

    def in_range(self, access: Access) -> None:
        self.law(
            0 <= access.tensor < len(self.states), f"accesses tensor {self.unknown(access.tensor)}"
        )
        tensor = self.trace.tensors[access.tensor]
        self.law(
            0 <= access.offset
            and 0 < access.length
            and access.offset + access.length <= tensor.bytes,
            f"accesses {access.length} bytes from {access.offset} of {self.name(access.tensor)}, "
            f"which has {tensor.bytes}",
        )
        self.law(
            tensor.freed_before is None or tensor.freed_before > self.index,
            f"accesses {self.name(access.tensor)}, which the program freed before op "
            f"{tensor.freed_before}",
        )

    def needs(self, tensor: int) -> None:
        """A carry of two tensors gives its start up before it allocates its end."""
        state = self.states[tensor]
        state.needed_at_start |= not state.written
        self.law(
            state.closed_by < 0 or not state.needed_at_start,
            f"reads {self.name(tensor)} though op {state.closed_by} has begun to write the tensor "
            "that carries it on (would be read before)",
        )

    def writes(self, tensor: int) -> bool:
        return 0 <= tensor < len(self.states) and self.states[tensor].listed_by == self.index

    def choices(self, op: Op) -> None:
        seen: set[int] = set()
        for tensor in op.once:
            self.law(self.writes(tensor), f"lists tensor {tensor} as once, but does not write it")
            self.law(tensor not in seen, f"lists {self.name(tensor)} twice as once")
            seen.add(tensor)
        for choice in op.choices:
            seen = set()
            for tensor in choice.omits:
                self.law(self.writes(tensor), f"may omit tensor {tensor}, but does not write it")
                self.law(
                    tensor not in seen,
                    f"lists {self.name(tensor)} twice among what a choice omits",
                )
                seen.add(tensor)
        self.law(len(op.choices) > 0, "has no choice (would be at least one)")
        self.law(
            op.recorded < len(op.choices), f"records choice {op.recorded} of {len(op.choices)}"
        )
        for choice in op.choices:
            self.add(
                "bytes",
                choice.workspace,
                f"has a workspace of {choice.workspace} bytes "
                "(would be 0 or more, and all with the tensors below 2^62 together)",
            )
            self.add(
                "ns",
                choice.ns,
                f"takes {choice.ns} ns (would be 0 or more, and all below 2^58 together)",
            )

    def numbers(self, op: Op) -> None:
        self.law(op.name != "", "has no name")
        for _, ns in op.kernels:
            self.add("ns", ns, "has a kernel of a time that is negative or too large")
        for key, value in op.attributes.items():
            self.law(math.isfinite(value), f'has an attribute "{key}" without value')
        for ns in (op.host_ns, op.host_sync_ns):
            self.add("ns", ns, "has a host time that is negative or too large")
        self.law(_is_measure(op.flops), "has flops that are no number of operations")
        self.add("moved", op.bytes_moved, "has bytes_moved negative or too large")
        self.law(op.micro_batch >= 0, "has a negative micro_batch")
        self.law(op.launch_group >= -1, "has a launch_group below -1")


def _is_measure(number: float) -> bool:
    return math.isfinite(number) and number >= 0
