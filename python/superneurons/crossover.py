"""Policies under budgets on many devices: what bench/crossover.py writes, in words."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from superneurons.files import BadInput, read_bytes, what_file_it_is, what_it_is

FORMAT = "superneurons-crossover"
GIB = 1 << 30


@dataclass
class Device:
    """All outcomes on one device. Bytes, nanoseconds, bytes per nanosecond."""

    name: str
    device: str
    times: str  # where the op times are from
    out: float  # rate of the link from device to host
    into: float
    liveness: int  # peak of `liveness`, which percent budgets are of
    kinds: dict[str, dict[str, int]]
    outcomes: list[dict[str, Any]]

    def best(self, budget: int) -> dict[str, Any] | None:
        """The fastest outcome under that budget."""
        here = [row for row in self.outcomes if row["budget_bytes"] == budget]
        return min(here, key=lambda row: row["step_ns"], default=None)

    def winner(self, budget: int) -> str:
        """Who is fastest under that budget; "any" where it makes less than 0.5 %."""
        here = [row for row in self.outcomes if row["budget_bytes"] == budget]
        best = self.best(budget)
        if not best:
            return "none"
        if len(here) > 1 and all(row["step_ns"] < 1.005 * best["step_ns"] for row in here):
            return "any"
        return str(best["policy"])

    def step(self, policy: str, budget: int) -> int | None:
        """Training step of a policy under a budget, in ns, where it fits."""
        for row in self.outcomes:
            if row["policy"] == policy and row["budget_bytes"] == budget:
                return int(row["step_ns"])
        return None

    @property
    def budgets(self) -> list[int]:
        """Device memory of each budget, largest first."""
        return sorted({row["budget_bytes"] for row in self.outcomes}, reverse=True)

    @property
    def compute(self) -> int:
        """Device time of all ops once, in ns."""
        return sum(row["ns"] for row in self.kinds.values())

    @property
    def hidden(self) -> float:
        """Bytes that can leave behind the forward ops and come back behind the others."""
        forward = sum(row["forward_ns"] for row in self.kinds.values())
        return min(forward * self.out, (self.compute - forward) * self.into)

    def remake_rate(self, kind: str) -> float:
        """Bytes that a nanosecond of running forward ops of this kind again makes."""
        row = self.kinds[kind]
        return row["forward_made_bytes"] / row["forward_ns"] if row["forward_ns"] else 0.0


@dataclass
class Crossover:
    """One trace on all devices."""

    trace: str
    policies: list[str]
    devices: list[Device]


def parse(text: str | bytes, name: str = "the result") -> Crossover:
    """Reads what bench/crossover.py writes."""
    try:
        value = json.loads(text)
        if value["format"] != FORMAT:
            raise BadInput(f"{what_it_is(value)} (would be a result of bench/crossover.py)", name)
        devices = [
            Device(
                name=row["name"],
                device=row["device"],
                times=row["times"],
                out=float(row["offload_bytes_per_ns"]),
                into=float(row["prefetch_bytes_per_ns"]),
                liveness=int(row["liveness_bytes"]),
                kinds=dict(row["kinds"]),
                outcomes=list(row["outcomes"]),
            )
            for row in value["devices"]
        ]
        return Crossover(str(value["trace"]), list(value["policies"]), devices)
    except (ValueError, KeyError, TypeError) as error:
        other = what_file_it_is(text.encode("utf-8", "replace") if isinstance(text, str) else text)
        if other and FORMAT not in other:
            raise BadInput(f"{other} (would be a result of bench/crossover.py)", name) from None
        raise BadInput(f"is no result of bench/crossover.py ({error})", name) from None


def read_crossover(path: str) -> Crossover:
    """Reads a file of bench/crossover.py."""
    return parse(read_bytes(path), path)


def drawn_policies(crossover: Crossover) -> list[str]:
    """SuperNeurons and its ablations beside offload alone, where there are any: the plain
    compositions lie upon them. Else all."""
    ours = [policy for policy in crossover.policies if policy.startswith("superneurons")]
    plain = [policy for policy in crossover.policies if policy == "liveness_offload"]
    return plain + ours if ours else crossover.policies


def _share(device: Device, budget: int) -> str:
    return f"{100 * budget / device.liveness:.0f} %"


# Moving alone, the same with recomputing, and recomputing alone; the first pair that was run.
_RIVALS = (
    ("superneurons_no_recompute", "superneurons", "superneurons_no_offload"),
    ("liveness_offload", "recompute_offload", "liveness_recompute"),
)


def _crossing(device: Device) -> str:
    """At which budget moving bytes stops being free, what recomputing gains there, and how far down
    recomputing alone goes."""
    run = {row["policy"] for row in device.outcomes}
    move, both, remake = next((r for r in _RIVALS if run >= set(r[:2])), _RIVALS[-1])
    alone = [budget for budget in device.budgets if device.step(remake, budget)]
    floor = f"; without transfers it fits down to {_share(device, alone[-1])}" if alone else ""
    for budget in device.budgets:
        moved, remade = (device.step(policy, budget) for policy in (move, both))
        if moved and remade and remade < 0.98 * moved:
            return (
                f"recompute first wins from {_share(device, budget)} down: "
                f"{remade / 1e6:.1f} ms ({both}) against {moved / 1e6:.1f} ms ({move}){floor}"
            )
    return f"offload alone is never more than 2 % behind{floor}"


def explain(crossover: Crossover) -> str:
    """Who wins where, and the rates that decide it."""
    lines = [f"{crossover.trace}: winner by budget (share of the liveness peak)"]
    for device in crossover.devices:
        winners = [
            f"{_share(device, budget)} {device.winner(budget)}" for budget in device.budgets
        ]
        lines.append(f"  {device.name}: " + ", ".join(winners))
    lines += ["", "what decides it"]
    for device in crossover.devices:
        hidden = device.hidden
        lines.append(
            f"  {device.name}: compute {device.compute / 1e6:.1f} ms; the link takes "
            f"{device.out:.1f} B/ns out, {device.into:.1f} in: {hidden / GIB:.2f} GiB leave behind "
            "forward and return behind backward, "
            f"{100 * hidden / device.liveness:.0f} % of the liveness peak; {_crossing(device)}"
        )
        rates = {
            kind: device.remake_rate(kind)
            for kind, row in device.kinds.items()
            if row["forward_ns"] and row["forward_made_bytes"]
        }
        lines.append(
            "    bytes made again per ns: "
            + ", ".join(
                f"{kind.removesuffix('Forward')} {rate:.0f}"
                for kind, rate in sorted(rates.items(), key=lambda item: -item[1])
            )
            + "; a byte offloaded and fetched takes the link "
            f"{1 / device.out + 1 / device.into:.3f} ns, none of it lost where it hides"
        )
    return "\n".join(lines)
