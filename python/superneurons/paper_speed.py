"""The paper's table and figures of speed: table 2; figures 11 and 14.

Nobody measured these devices: times are the roofline's of profiles made from data sheets.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from superneurons import paper_data as paper
from superneurons.paper_lab import GIB, ROOT, Lab, Table, columns, ratio
from superneurons.paper_memory import CACHE, LIVENESS, OFFLOAD_CONV
from superneurons.paper_workspaces import RECORDED, state_bytes

K40, TITAN = "k40c-12gb", "titan-xp"
OURS = "superneurons"
TITAN_MEMORY = 12 * GIB

_PROFILE_NOTE = (
    "Not measured: times are the roofline's of a profile made from the card's data sheet, with"
    "\nefficiencies fitted on recordings of an H200."
)


def _batch11(network: str) -> int:
    return 128 if network == "alexnet" else 32


def _allocations(memory: dict[str, Any]) -> int:
    """cudaMalloc calls of a training step: every tensor that is freed, and each workspace."""
    freed = sum(1 for kind in memory["kind"] if kind == "free")
    commands = zip(memory["kind"], memory["workspace"])
    spaces = sum(1 for kind, space in commands if kind == "run" and space > 0)
    return freed + spaces


def _profile(name: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((ROOT / "traces" / "profiles" / f"{name}.json").read_text())
    return value


def table2(lab: Lab) -> Table:
    """Speed with the pool and with cudaMalloc."""
    alloc = _profile(K40)["alloc_ns"]

    def row_of(network: str) -> list[Any]:
        batch = 128 if network == "alexnet" else 16
        with_calls, with_pool = paper.TABLE2[network]
        trace = lab.build(network, batch, "--paper", "--device", K40)
        outcome = lab.simulate(trace, LIVENESS, "--device", K40)
        memory = lab.series(trace, "--memory", LIVENESS, "--device", K40)
        row: list[Any] = [network, f"{batch}"]
        if outcome and memory:
            count, step = _allocations(memory), outcome["step_ns"]
            calls = step + alloc * count
            row += [count, batch * 1e9 / calls, with_calls, batch * 1e9 / step, with_pool]
            row += [calls / step]
        else:
            row += [None, None, with_calls, None, with_pool, None]
        return [*row, with_pool / with_calls]

    return Table(
        "table2",
        "Table 2: images/s with cudaMalloc and with the pool",
        [
            f"lowering paper; policy {LIVENESS}; device {K40}",
            f"cudaMalloc and cudaFree: {alloc / 1e6:.1f} ms (of the profile) each time that the plan "
            "frees a tensor",
        ],
        columns(
            [
                "network",
                "batch",
                "allocations|ours|d",
                "cudaMalloc|ours|.1f",
                "cudaMalloc|paper|.1f",
                "pool|ours|.1f",
                "pool|paper|.1f",
                "speedup|ours|.2f",
                "speedup|paper|.2f",
            ]
        ),
        [row_of(network) for network in paper.TABLE2],
        [
            *_PROFILE_NOTE.split("\n"),
            "The profile's cost of an allocation is worked out from this very table's ResNet-50 and",
            "ResNet-152, so only the others are predictions. The pool gains more here where the roofline's",
            "step is much shorter than the paper's: allocations cost the same beside less. The paper's text",
            "gives 36.28 % of time lost for ResNet-50, its table 34.7 %. The GPU is not stated.",
        ],
    )


def figure11(lab: Lab) -> Table:
    """Speed that the tensor cache brings."""

    def row_of(network: str) -> list[Any]:
        batch = _batch11(network)
        trace = lab.build(network, batch, "--paper", "--device", K40)
        without = lab.simulate(trace, OFFLOAD_CONV, "--device", K40)
        cached = lab.simulate(trace, CACHE, "--device", K40)
        moved = [
            (o["offload_bytes"] + o["prefetch_bytes"]) / 1e9 if o else None for o in (without, cached)
        ]
        steps = [o["step_ns"] / 1e6 if o else None for o in (without, cached)]
        return [network, f"{batch}", *moved, *steps, ratio(*steps), paper.FIGURE11[network]]

    return Table(
        "figure11",
        "Figure 11: speed with the tensor cache over speed without",
        [
            f"lowering paper; device {K40}: 12 GiB, 8 GB/s each way (the paper's rate)",
            f"without: {OFFLOAD_CONV}",
            f"with: {CACHE}",
        ],
        columns(
            [
                "network",
                "batch",
                "GB copied without|ours|.2f",
                "GB copied with|ours|.2f",
                "step without, ms|ours|.1f",
                "step with, ms|ours|.1f",
                "speed|ours|.2f",
                "speed|paper|.2f",
            ]
        ),
        lab.map(row_of, paper.FIGURE11),
        [
            *_PROFILE_NOTE.split("\n"),
            "The GPU is not stated; on a slower one more of the copies hides behind kernels. Without the",
            "cache each output goes right after its forward use and is fetched three layer steps ahead, as",
            "figure 10 (b) shows.",
        ],
    )


def figure14(lab: Lab) -> Table:
    """Speed over the batch."""
    jobs = []
    for network, printed in paper.FIGURE14.items():
        first, distance = paper.FIGURE14_BATCHES[network]
        for i, rate in enumerate(printed["superneurons"]):
            others = {name: row[i] for name, row in printed.items() if i < len(row)}
            others.pop("superneurons")
            rival = max(others, key=lambda name: others[name], default=None)
            jobs.append(
                (network, first + i * distance, rate, rival, others[rival] if rival else None)
            )

    def row_of(job: tuple[str, int, int, str | None, int | None]) -> list[Any]:
        network, batch, rate, rival, best = job
        trace = lab.build(network, batch, "--paper", "--device", TITAN)
        outcome = lab.simulate(trace, OURS, "--device", TITAN)
        ours = batch * 1e9 / outcome["step_ns"] if outcome else None
        return [
            network,
            f"{batch}",
            ours,
            rate,
            ratio(ours, rate),
            _recorded14(lab, network, batch),
            outcome and outcome["placed_peak_bytes"] / GIB,
            outcome and (outcome["offload_bytes"] + outcome["prefetch_bytes"]) / 1e9,
            outcome and outcome["recompute_runs"],
            best,
            rival,
        ]

    rows = lab.map(row_of, jobs)
    return Table(
        "figure14",
        "Figure 14: images/s over the batch on a TITAN Xp",
        [
            f"lowering paper; policy {OURS}; device {TITAN}: 12 GiB, 12 GB/s each way",
            "recorded: traces/ of the network, recorded on an H200 at one batch with all its convolution",
            f"algorithms, scaled to {TITAN}, under the budget that leaves each image its share of 12 GiB",
        ],
        columns(
            [
                "network",
                "batch",
                "images/s|ours|.0f",
                "images/s|paper|d",
                "ours / paper||.2f",
                "recorded|ours|.0f",
                "arena GiB|ours|.1f",
                "GB copied|ours|.1f",
                "runs again|ours|d",
                "best rival|paper|d",
                "rival|paper",
            ]
        ),
        rows,
        [
            *_PROFILE_NOTE.split("\n"),
            "The level: op times are cuDNN 9's on an H200 (2026), scaled by the ratio of both cards' data",
            "sheets and by efficiencies fitted there; print ran cuDNN 7 or earlier, with a host that nobody",
            "models. That leaves ours at about 1 to 1.3 times print where memory is not short. The gradient",
            "of the input batch, which the paper's lowering computes, was never recorded: it is costed as a",
            "matrix product with col2im.",
            "The slope: print falls long before 12 GiB are full (AlexNet from batch 768, which liveness alone",
            "holds in 7.2 GiB), so its pool was smaller, and it falls by about what its own figure 2 says that",
            "workspaces bring (AlexNet 1.87 of 2.01 times, VGG-16 1.74 of 1.59): as memory gets short its",
            "convolutions lose their fast algorithms. Traces from the cost model know no workspaces, so that",
            "only copies and reruns slow ours; in those recorded, VGG-16 gives up workspaces from 96 on.",
            "ResNets in print fall by more than the 1.1 to 1.2 times of figure 2: they pay for copies, which",
            "the released code makes synchronously (an LRU eviction when an allocation fails).",
        ],
        [_loss_text(network, rows) for network in paper.FIGURE14] if rows[0][2] else [],
    )


def _recorded14(lab: Lab, network: str, batch: int) -> float | None:
    """Images per second of the recorded trace with as much memory for each image as at `batch`."""
    recorded = RECORDED.get(network)
    trace = lab.recorded(f"{network}-b{recorded}") if recorded else None
    if trace is None or recorded is None:
        return None
    state = state_bytes(lab.show(trace))
    budget = state + (TITAN_MEMORY - state) * recorded // batch
    outcome = lab.simulate(trace, OURS, "--device", TITAN, budget=budget)
    return recorded * 1e9 / outcome["step_ns"] if outcome else None


def _loss_text(network: str, rows: list[list[Any]]) -> str:
    parts = []
    for whose, index in (("ours", 2), ("paper", 3)):
        rates = [row[index] for row in rows if row[0] == network and row[index]]
        lost = 100 * (1 - rates[-1] / max(rates)) if rates else 0
        parts.append(f"{lost:.0f} % ({whose})")
    return f"{network}: from the best to the largest batch it loses {', '.join(parts)}"
