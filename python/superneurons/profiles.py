"""Device profiles: what the simulator must know of a machine (traces/FORMAT.md)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from superneurons.fields import (
    FLAG,
    INT64,
    REAL,
    TEXT,
    Field,
    list_of,
    map_of,
    pair_of,
    read_fields,
    record_of,
    written,
)
from superneurons.files import (
    FORMAT_VERSION,
    BadInput,
    header_problem,
    not_json,
    parse_json,
    read_bytes,
    write_text,
)

FORMAT = "superneurons-profile"


@dataclass
class TransferCurve:
    """Time of a copy in one direction: lines between points, bytes_per_ns beyond the last."""

    points: list[tuple[int, int]]  # (bytes, ns), ascending in bytes
    bytes_per_ns: float

    def ns(self, count: int) -> float:
        """Nanoseconds to copy `count` bytes."""
        points = self.points
        if count <= points[0][0]:
            return points[0][1]
        for (low, low_ns), (high, high_ns) in zip(points, points[1:]):
            if count <= high:
                return low_ns + (high_ns - low_ns) * (count - low) / (high - low)
        return points[-1][1] + (count - points[-1][0]) / self.bytes_per_ns


@dataclass
class Interference:
    """Kernels take 1 + this many times as long while such copies run."""

    offload: float = 0.0
    prefetch: float = 0.0
    both: float = 0.0


@dataclass
class Efficiency:
    """Fractions of the device's rates that a kind of op reaches, and its least time."""

    flops: float
    bandwidth: float
    floor_ns: int = 0


@dataclass
class DeviceProfile:
    """A machine. Memory in bytes, times in nanoseconds, rates per nanosecond."""

    name: str
    measured: bool  # False: from a data sheet
    device_memory: int
    host_memory: int  # pinned
    offload: TransferCurve  # device to host
    prefetch: TransferCurve  # host to device
    device: str = ""
    origin: str = ""
    both_bytes_per_ns: float = 0.0  # both directions together; 0: no loss
    memory_bound: Interference = field(default_factory=Interference)
    compute_bound: Interference = field(default_factory=Interference)
    launch_ns: int = 0
    copy_issue_ns: int = 0
    event_ns: int = 0
    gap_ns: int = 0
    wait_ns: int = 0
    alloc_ns: int = 0
    pin_ns_per_byte: float = 0.0
    flops_per_ns: float = 0.0
    tf32_flops_per_ns: float = 0.0
    memory_bytes_per_ns: float = 0.0
    efficiency: dict[str, Efficiency] = field(
        default_factory=dict
    )  # by kind of op, "" for all others


_CURVE = record_of(
    TransferCurve,
    (Field("points", list_of(pair_of(INT64, INT64, "[bytes, ns]"))), Field("bytes_per_ns", REAL)),
)
_INTERFERENCE = record_of(
    Interference,
    (Field("offload", REAL, 0.0), Field("prefetch", REAL, 0.0), Field("both", REAL, 0.0)),
)
_EFFICIENCY = record_of(
    Efficiency, (Field("flops", REAL), Field("bandwidth", REAL), Field("floor_ns", INT64, 0))
)
_FIELDS = (
    Field("name", TEXT),
    Field("device", TEXT, ""),
    Field("measured", FLAG),
    Field("origin", TEXT, ""),
    Field("device_memory", INT64),
    Field("host_memory", INT64),
    Field("offload", _CURVE),
    Field("prefetch", _CURVE),
    Field("both_bytes_per_ns", REAL, 0.0),
    Field("memory_bound", _INTERFERENCE, None, always=True),
    Field("compute_bound", _INTERFERENCE, None, always=True),
    Field("launch_ns", INT64, 0),
    Field("copy_issue_ns", INT64, 0),
    Field("event_ns", INT64, 0),
    Field("gap_ns", INT64, 0),
    Field("wait_ns", INT64, 0),
    Field("alloc_ns", INT64, 0),
    Field("pin_ns_per_byte", REAL, 0.0),
    Field("flops_per_ns", REAL, 0.0),
    Field("tf32_flops_per_ns", REAL, 0.0),
    Field("memory_bytes_per_ns", REAL, 0.0),
    Field("efficiency", map_of(_EFFICIENCY), {}),
)


# Far outside of what any machine does, and narrow enough that no model of it overflows.
_LONGEST_COST = 1_000_000_000  # ns: launch, event, gap, ...
_LONGEST_COPY = 1 << 50  # ns, of a measured point
_LARGEST_SLOWDOWN = 1000


def _problem(profile: DeviceProfile) -> str:
    for direction, curve in (("offload", profile.offload), ("prefetch", profile.prefetch)):
        sizes = [size for size, _ in curve.points]
        if not sizes:
            return f'"{direction}" has no points (would be [[bytes, ns], ...])'
        if not _is_rate(curve.bytes_per_ns):
            return f'"{direction}" has bytes_per_ns that is not above 0 (would be from 1e-6 to 1e9)'
        if any(size < 0 or ns < 0 for size, ns in curve.points):
            return f'"{direction}" has a point with a negative number'
        if any(ns > _LONGEST_COPY for _, ns in curve.points):
            return f'"{direction}" has a point of more than 2^50 ns'
        if any(low >= high for low, high in zip(sizes, sizes[1:])):
            return f'"{direction}" has points whose bytes do not ascend'
    if profile.device_memory <= 0:
        return '"device_memory" is not above 0'
    for each in _FIELDS:
        value = getattr(profile, each.attribute)
        numbers = list(vars(value).values()) if isinstance(value, Interference) else [value]
        if any(isinstance(number, (int, float)) and not _is_measure(number) for number in numbers):
            return f'"{each.key}" is negative or no number (would be 0 or more)'
        if each.key.endswith("_ns") and isinstance(value, int) and value > _LONGEST_COST:
            return f'"{each.key}" is above 1 s'
        if isinstance(value, Interference) and max(numbers) > _LARGEST_SLOWDOWN:
            return f'"{each.key}" has a slowdown above 1000'
        if isinstance(value, float) and value != 0 and not _is_rate(value):
            return f'"{each.key}" is tiny or huge (would be 0, or from 1e-6 to 1e9 per ns)'
    for kind, fractions in profile.efficiency.items():
        if not (_is_rate(fractions.flops) and _is_rate(fractions.bandwidth)):
            return f'the efficiency of "{kind}" is not above 0 (would be from 1e-6 to 1e9)'
        if not 0 <= fractions.floor_ns <= _LONGEST_COST:
            return f'the floor of "{kind}" is negative or above 1 s'
    return ""


def _is_rate(number: float) -> bool:
    return 1e-6 <= number <= 1e9


def _is_measure(number: float) -> bool:
    return math.isfinite(number) and number >= 0


def parse_profile(text: str | bytes, name: str = "the profile", line: int = 1) -> DeviceProfile:
    """Reads the text of a profile, which starts at `line` of `name`."""
    try:
        value = parse_json(text.decode("utf-8") if isinstance(text, bytes) else text)
    except ValueError as error:
        data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
        raise BadInput(not_json(error, data, FORMAT), name, line) from None
    problem = header_problem(value, FORMAT)
    try:
        if not problem:
            profile = DeviceProfile(**read_fields(value, _FIELDS, what="the profile"))
            problem = _problem(profile)
    except BadInput as error:
        problem = error.message
    if problem:
        raise BadInput(problem, name, line)
    return profile


def read_profile(path: str) -> DeviceProfile:
    """Reads a profile file."""
    return parse_profile(read_bytes(path), path)


def format_profile(profile: DeviceProfile) -> str:
    """The canonical text, a line per field, the same bytes that the program writes."""
    parts = [f'"format":"{FORMAT}"', f'"version":"{FORMAT_VERSION}"', *written(profile, _FIELDS)]
    return "{\n  " + ",\n  ".join(parts) + "\n}\n"


def write_profile(profile: DeviceProfile, path: str) -> None:
    """Writes to another name and renames."""
    write_text(path, format_profile(profile))
