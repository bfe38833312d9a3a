"""Traces: one training step of a program as tensors and ops in executed order (traces/FORMAT.md).

    trace = read_trace("traces/alexnet-b128.jsonl.gz")
    print(len(trace.ops), sum(tensor.bytes for tensor in trace.tensors))

Tensors and ops are named by their positions. Sizes are bytes, times nanoseconds.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

from superneurons.fields import (
    FLAG,
    INDEX,
    INT32,
    INT64,
    REAL,
    TEXT,
    Field,
    Form,
    RecordReader,
    Wrong,
    compare_count,
    header_line,
    list_of,
    map_of,
    one_of,
    pair_of,
    read_fields,
    record_of,
    written,
)
from superneurons.files import BadInput, read_bytes, write_text
from superneurons.laws import find_fault

FORMAT = "superneurons-trace"
ROLES = (
    "input",
    "parameter",
    "buffer",
    "gradient",
    "optimizer_state",
    "activation",
    "activation_gradient",
    "saved",
    "temporary",
)
PHASES = ("forward", "backward", "recompute", "update", "other")
FACTS = (
    "accesses",
    "frees",
    "durations",
    "workspaces",
    "choices",
    "layers",
    "phases",
    "flops",
    "kernels",
    "host_times",
    "native",
)
CAPABILITIES = ("none", "inferred", "exact")


@dataclass(slots=True)
class Tensor:
    """One storage; views are dissolved into byte ranges of their storage."""

    name: str  # unique
    bytes: int  # above 0
    role: str  # one of ROLES
    dtype: str = "f32"
    shape: list[int] = field(default_factory=list)
    layer: str = ""
    freed_before: int | None = None  # op before which the program freed it; None: alive at the end
    init: str = ""  # first content in native replay
    init_scale: float = 0.0


@dataclass(slots=True)
class Access:
    """A range of a tensor: bytes [offset, offset + length)."""

    tensor: int
    offset: int
    length: int


@dataclass(slots=True)
class Choice:
    """One way to do an op."""

    algorithm: str = ""
    math: str = ""
    workspace: int = 0  # bytes that it needs while it runs
    ns: int = 0  # device time
    deterministic: bool = True
    omits: list[int] = field(default_factory=list)  # outputs that it does not produce


@dataclass(slots=True)
class Op:
    """One entry of the recorded step."""

    name: str  # unique
    kind: str
    choices: list[Choice]  # at least one
    phase: str = "other"  # one of PHASES
    layer: str = ""
    reads: list[Access] = field(default_factory=list)
    writes: list[Access] = field(default_factory=list)
    once: list[int] = field(default_factory=list)  # outputs that only the first run writes
    recorded: int = 0  # the choice that the recorded step took
    kernels: list[tuple[str, int]] = field(default_factory=list)  # name, ns
    attributes: dict[str, float] = field(default_factory=dict)
    rerunnable: bool = True
    random: bool = False
    micro_batch: int = 0
    launch_group: int = -1  # ops of one multi-tensor launch share a number
    host_ns: int = 0  # host time to issue it
    host_sync_ns: int = 0  # the host waits for the device that long
    flops: float = 0.0
    bytes_moved: int = 0


@dataclass(slots=True)
class Carry:
    """What `end` holds at the end of the training step is what `start` holds at the next start."""

    start: int
    end: int


@dataclass(slots=True)
class Trace:
    """One training step."""

    name: str
    tensors: list[Tensor] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    carry: list[Carry] = field(default_factory=list)
    origin: str = ""
    device: str = ""
    lowering: str = ""
    network: str = ""
    batch: int = 0
    math: str = "fp32"
    step_ns_untraced: int = 0
    step_ns_traced: int = 0
    dropped_records: int = 0
    allocated_peak: int = 0  # most bytes that the program's allocator had given out at one time
    reserved_peak: int = 0  # most bytes that it held of the device
    owned_ns: int = 0  # device time of the traced training steps that belongs to ops
    orphan_ns: int = 0  # and that belongs to none
    orphans: int = 0  # kernels and copies of no op
    capabilities: dict[str, str] = field(
        default_factory=dict
    )  # fact to inferred or exact; else none


def _read_access(value: Any, tensors: list[Tensor]) -> Access:
    if isinstance(value, list):
        if len(value) != 3 or not 0 <= INT64.read(value[0], None) < 1 << 32:
            raise Wrong(value, "[tensor, offset, length] or a tensor")
        access = Access(*(INT64.read(number, None) for number in value))
    else:
        access = Access(INDEX.read(value, None), 0, 0)
    if access.tensor >= len(tensors):
        raise Wrong(access.tensor, f"one of the {len(tensors)} tensors so far")
    if not isinstance(value, list):
        access.length = tensors[access.tensor].bytes
    return access


def _write_access(access: Access, tensors: list[Tensor]) -> str:
    whole = access.tensor < len(tensors) and access.length == tensors[access.tensor].bytes
    if whole and access.offset == 0:
        return str(access.tensor)
    return f"[{access.tensor},{access.offset},{access.length}]"


_HEADER = (
    Field("name", TEXT),
    Field("origin", TEXT, ""),
    Field("device", TEXT, ""),
    Field("lowering", TEXT, ""),
    Field("network", TEXT, ""),
    Field("batch", INT64, 0),
    Field("math", TEXT, "fp32"),
    Field("step_ns_untraced", INT64, 0),
    Field("step_ns_traced", INT64, 0),
    Field("dropped_records", INT64, 0),
    Field("allocated_peak", INT64, 0),
    Field("reserved_peak", INT64, 0),
    Field("owned_ns", INT64, 0),
    Field("orphan_ns", INT64, 0),
    Field("orphans", INT64, 0),
)
_CAPABILITIES = Field("capabilities", map_of(one_of(CAPABILITIES)), {})
_TENSOR = (
    Field("name", TEXT),
    Field("bytes", INT64),
    Field("dtype", TEXT, "f32"),
    Field("shape", list_of(INT64), []),
    Field("layer", TEXT, ""),
    Field("role", one_of(ROLES)),
    Field("freed_before", INDEX, None),
    Field("init", TEXT, ""),
    Field("init_scale", REAL, 0.0),
)
_CHOICE = (
    Field("algorithm", TEXT, ""),
    Field("math", TEXT, ""),
    Field("workspace", INT64, 0),
    Field("ns", INT64, 0),
    Field("deterministic", FLAG, True),
    Field("omits", list_of(INDEX), []),
)
_ACCESS = Form(_read_access, _write_access)
_OP = (
    Field("name", TEXT),
    Field("kind", TEXT),
    Field("phase", one_of(PHASES), "other"),
    Field("layer", TEXT, ""),
    Field("reads", list_of(_ACCESS), []),
    Field("writes", list_of(_ACCESS), []),
    Field("once", list_of(INDEX), []),
    Field("choices", list_of(record_of(Choice, _CHOICE))),
    Field("recorded", INDEX, 0),
    Field("kernels", list_of(pair_of(TEXT, INT64, "[name, ns]")), []),
    Field("attributes", map_of(REAL), {}),
    Field("rerunnable", FLAG, True),
    Field("random", FLAG, False),
    Field("micro_batch", INT32, 0),
    Field("launch_group", INT32, -1),
    Field("host_ns", INT64, 0),
    Field("host_sync_ns", INT64, 0),
    Field("flops", REAL, 0.0),
    Field("bytes_moved", INT64, 0),
)
_CARRY = (Field("start", INDEX), Field("end", INDEX, None))


class _Reader(RecordReader):
    format = FORMAT

    def __init__(self) -> None:
        self.trace = Trace("")
        self.lines: dict[tuple[str, int], int] = {}  # of each record
        self.wrong_bytes: BadInput | None = (
            None  # of the end record; a bad size of a tensor goes first
        )

    def header(self, record: dict[str, Any]) -> None:
        self.trace = Trace(**read_fields(record, _HEADER, what="the header"))
        found = read_fields(record, [_CAPABILITIES], what="the header").get("capabilities", {})
        self.trace.capabilities = {
            fact: found[fact] for fact in FACTS if found.get(fact, "none") != "none"
        }

    def record(self, record: dict[str, Any], kind: str) -> None:
        trace = self.trace
        if kind == "op":
            trace.ops.append(Op(**self._row(record, kind, len(trace.ops), _OP)))
        elif kind == "tensor":
            trace.tensors.append(Tensor(**self._row(record, kind, len(trace.tensors), _TENSOR)))
        elif kind == "carry":
            self.lines["carry", len(trace.carry)] = self.line
            values = read_fields(record, _CARRY, what=f"carry {len(trace.carry)}")
            trace.carry.append(Carry(values["start"], values.get("end", values["start"])))
        elif kind == "":
            raise BadInput('a record without a kind (would have "r":"op" ...)')
        elif kind == "end":
            compare_count(record, "tensors", len(trace.tensors))
            compare_count(record, "ops", len(trace.ops))
            compare_count(record, "carry", len(trace.carry))
            try:
                compare_count(record, "bytes", sum(tensor.bytes for tensor in trace.tensors))
            except BadInput as error:
                self.wrong_bytes = error

    def _row(
        self, record: dict[str, Any], kind: str, due: int, fields: tuple[Field, ...]
    ) -> dict[str, Any]:
        id_ = read_fields(record, [Field("id", INDEX)], what=f"{kind} {due}")["id"]
        if id_ < due:
            raise BadInput(f"a second {kind} {id_} (would be {due})")
        if id_ > due:
            raise BadInput(f"{kind} {id_} comes where {due} is due")
        self.lines[kind, due] = self.line
        return read_fields(record, fields, self.trace.tensors, f"{kind} {due}")

    def progress(self) -> str:
        for kind, table in (("op", self.trace.ops), ("tensor", self.trace.tensors)):
            if table:
                return f'{kind} {len(table) - 1} "{table[-1].name}"'
        return "the header"


def parse_trace(text: str | bytes, name: str = "the trace") -> Trace:
    """Reads the text of a trace and holds it against the laws; `name` is used in errors."""
    reader = _Reader()
    reader.read(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text, name)
    fault = find_fault(reader.trace)
    if fault:
        raise BadInput(fault.message, name, reader.lines.get((fault.record, fault.index), 1))
    if reader.wrong_bytes:
        raise BadInput(reader.wrong_bytes.message, name, reader.line)
    return reader.trace


def read_trace(path: str) -> Trace:
    """Reads a trace file, packed if its name ends in .gz; "-" is standard input."""
    return parse_trace(read_bytes(path), path)


def format_trace(trace: Trace) -> str:
    """The canonical text, the same bytes that the program writes."""
    known = {fact: value for fact, value in trace.capabilities.items() if value != "none"}
    more = [f'"capabilities":{_CAPABILITIES.form.write(known, None)}'] if known else []
    parts = [header_line(FORMAT, trace, _HEADER, *more)]
    for kind, table, fields in (("tensor", trace.tensors, _TENSOR), ("op", trace.ops, _OP)):
        for i, row in enumerate(table):
            head = [f'"r":"{kind}"', f'"id":{i}']
            parts.append("{" + ",".join(head + written(row, fields, trace.tensors)) + "}\n")
    for carry in trace.carry:
        end = f',"end":{carry.end}' if carry.end != carry.start else ""
        parts.append(f'{{"r":"carry","start":{carry.start}{end}}}\n')
    total = sum(tensor.bytes for tensor in trace.tensors)
    parts.append(
        f'{{"r":"end","tensors":{len(trace.tensors)},"ops":{len(trace.ops)},'
        f'"carry":{len(trace.carry)},"bytes":{total}}}\n'
    )
    return "".join(parts)


def write_trace(trace: Trace, path: str) -> None:
    """Writes to another name and renames; BadInput for a trace that breaks a law."""
    fault = find_fault(trace)
    if fault:
        raise BadInput(fault.message, path)
    write_text(path, format_trace(trace))


def trace_hash(trace: Trace) -> str:
    """16 hexadecimal digits, a hash of the canonical text: plans and results name the trace so."""
    text = format_trace(trace).encode("utf-8")
    mask = (1 << 64) - 1
    value = 0x9E3779B97F4A7C15 ^ len(text)
    for (word,) in struct.iter_unpack("<Q", text + bytes(-len(text) % 8)):
        value = ((value ^ word) * 0xFF51AFD7ED558CCD) & mask
        value ^= value >> 32
    value = (value * 0xC4CEB9FE1A85EC53) & mask
    return f"{value ^ (value >> 32):016x}"
