"""How deep and how wide: tables 4 and 5, the models of frameworks, and what was trained for real.

Sizes decide; times are the roofline's of a profile made from a data sheet.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from superneurons import paper_data as paper
from superneurons.paper_lab import GIB, ROOT, Lab, Table, columns

K40 = "k40c-12gb"
BUDGET = "12GiB"
DEEP = "resnet:6,32,6,6"  # n3 is varied
MEASURED = ROOT / "bench" / "h200" / "scale.jsonl"

PAPER = ("--lowering", "paper")
NATIVE = ("--lowering", "native", "--update", "arrive")
# The first alternative of `superneurons`: traces from the cost model know no workspaces, and the
# others, of which each would be planned wherever one does not fit, leave out a part of it. Table 5
# is the same with all of them, in six times the time.
OURS = "liveness+recompute+tensor_cache"
OURS_STATE = "liveness+recompute:need=all+offload:layers=all,need=all+offload_state"
RESIDENT = "liveness+recompute+offload:layers=checkpoints"


@dataclass(frozen=True)
class Strategy:
    """A policy and the options of the network that it is for."""

    policy: str
    options: tuple[str, ...]


# Memory strategies of other frameworks are models of ours (networks/frameworks.md), in the
# registry's order; a lowering serves two of them.
MODELS = {
    name: Strategy(name, ("--lowering", name.partition("_")[0]))
    for name in ("caffe", "torch", "torch_shared", "mxnet", "mxnet_mirror", "tensorflow")
}


def largest(lab: Lab, network: str, strategy: Strategy) -> dict[str, Any] | None:
    """What `fit` finds in 12 GiB: of DEEP the depth at batch 16, else the batch. None: nothing."""
    vary = ("depth", "--batch", "16") if network == DEEP else ("batch",)
    words = ["fit", network, "--vary", *vary, "--policy", strategy.policy, *strategy.options]
    return lab.once(*words, "--budget", BUDGET, "--device", K40)


_MODEL_NOTES = [
    "caffe to tensorflow are models of documented memory strategies (networks/frameworks.md): tensors",
    "only, without workspaces, context, prefetched batches and fragmentation of those programs, which",
    "therefore fit less.",
]

_STRATEGIES4 = {
    **MODELS,
    "superneurons": Strategy(OURS, PAPER),
    "superneurons, state resident": Strategy(RESIDENT, PAPER),
    "superneurons, native": Strategy(OURS, NATIVE),
    "+ offload_state, native": Strategy(OURS_STATE, NATIVE),
}


def table4(lab: Lab) -> Table:
    """How deep a ResNet fits."""

    def row_of(name: str) -> list[Any]:
        found = largest(lab, DEEP, _STRATEGIES4[name])
        return [
            name,
            found and found["value"],
            found and found["depth"],
            paper.TABLE4.get(name),
            found and found["host_bytes"] / GIB,
            found and found["images_per_s"],
        ]

    rows = lab.map(row_of, _STRATEGIES4)
    return Table(
        "table4",
        "Table 4: the deepest ResNet (n1=6, n2=32, n4=6, n3 varied) at batch 16 in 12 GiB",
        [
            f"device {K40}, 64 GiB of host memory; fit --vary depth; caffe to tensorflow: policy of that",
            "name on the lowering that it is for",
            f"superneurons: {OURS}, lowering paper: the first alternative of",
            "`superneurons` where there are no workspaces to choose, as in traces from the cost model",
            f"state resident: {RESIDENT}, lowering paper:",
            "only activations move, as in the paper",
            f"native: {OURS}, lowering native, updates as gradients arrive",
            f"+ offload_state: {OURS_STATE}",
        ],
        columns(
            [
                "policy",
                "n3|ours|d",
                "depth|ours|d",
                "depth|paper|d",
                "host GiB|ours|.1f",
                "images/s|ours|.2f",
            ]
        ),
        rows,
        [
            *_MODEL_NOTES,
            "Caffe's does not fit at n3 = 1, depth 137: 12.07 GiB; the paper prints 148. What stops the rest:",
            "state resident: parameters, their gradients and momentum, which the paper keeps on the device;",
            "superneurons, native: parameters and momentum, which fill the 12 GiB where a training step",
            "begins, whatever the lowering (the cache takes gradients to the host); + offload_state: 64 GiB",
            "of host memory. The paper's 1920 had workspaces and a context beside them.",
            "depth = 3(n1+n2+n3+n4)+2; of the printed depths only 152 has a whole n3. Times are the roofline's",
            "of the card's data sheet.",
        ],
        [] if lab.dry else measured_depths(),
    )


def _depth(network: str) -> int:
    return 3 * sum(map(int, network.removeprefix("resnet:").split(","))) + 2


def deeper(path: Path = MEASURED) -> list[tuple[int, dict[str, Any]]]:
    """Depth and row of the ResNets of table 4 that trained for real at its batch, by depth."""
    head, tail = DEEP.split(",6,")[0] + ",", ",6"
    rows = [row for row in measured(path) if row["batch"] == 16]
    return sorted(
        (
            (_depth(row["network"]), row)
            for row in rows
            if row["network"].startswith(head) and row["network"].endswith(tail)
        ),
        key=lambda pair: pair[0],
    )


def measured_depths(path: Path = MEASURED) -> list[str]:
    """The same in words."""
    lines = [
        f"  depth {depth}: {row['measured_images_per_s']:.2f} images/s, arena "
        f"{row['measured_peak_bytes'] / GIB:.2f} GiB, host {row['host_bytes'] / GIB:.1f} GiB; "
        f"{row['policy']}"
        for depth, row in deeper(path)
    ]
    if not lines:
        return []
    return [
        "Trained for real on an H200 in an arena of 12 GiB, batch 16, lowering native, updates as",
        "gradients arrive (bench/h200/scale.jsonl):",
        *lines,
    ]


def table5(lab: Lab) -> Table:
    """How large a batch fits."""
    ours = {name: MODELS[name] for name in paper.FRAMEWORKS if name in MODELS}
    ours |= {"superneurons": Strategy(OURS, PAPER), "native": Strategy(OURS, NATIVE)}
    jobs = [(network, name) for network in paper.TABLE5 for name in ours]

    def fit(job: tuple[str, str]) -> int | None:
        found = largest(lab, job[0], ours[job[1]])
        return int(found["value"]) if found else None

    found = dict(zip(jobs, lab.map(fit, jobs)))
    rows = []
    for network, printed in paper.TABLE5.items():
        row: list[Any] = [network]
        for framework, batch in zip(paper.FRAMEWORKS, printed):
            row += [found[network, framework], batch]
        rows.append([*row, found[network, "native"]])
    names = ["network"]
    for framework in paper.FRAMEWORKS:
        names += [f"{framework}|ours|d", f"{framework}|paper|d"]
    return Table(
        "table5",
        "Table 5: the largest batch in 12 GiB",
        [
            f"device {K40}; fit --vary batch; caffe to tensorflow: policy and lowering of the name's own",
            f"superneurons: {OURS}, lowering paper: the first alternative of",
            "`superneurons` where there are no workspaces to choose, as in traces from the cost model",
            "native: the same, lowering native, updates as gradients arrive",
        ],
        columns([*names, "native|ours|d"]),
        rows,
        ["The paper's batches go in steps; ours are exact.", *_MODEL_NOTES],
    )


def frameworks(lab: Lab) -> Table:
    """The models of frameworks: the largest batch and depth of each."""
    jobs = [(network, name) for network in (*paper.TABLE5, DEEP) for name in MODELS]
    found = dict(zip(jobs, lab.map(lambda job: largest(lab, job[0], MODELS[job[1]]), jobs)))
    rows: list[list[Any]] = []
    for network in (*paper.TABLE5, DEEP):
        row: list[Any] = ["depth" if network == DEEP else network]
        for name in MODELS:
            fit = found[network, name]
            row += [fit and fit["depth" if network == DEEP else "value"]]
            if name not in paper.FRAMEWORKS:
                continue
            if network == DEEP:
                row.append(paper.TABLE4[name])
            else:
                row.append(paper.TABLE5[network][paper.FRAMEWORKS.index(name)])
        rows.append(row)
    names = ["network"]
    for name in MODELS:
        names += [f"{name}|ours|d"] + ([f"{name}|paper|d"] if name in paper.FRAMEWORKS else [])
    return Table(
        "frameworks",
        "Models of other frameworks: the largest batch, and the deepest ResNet, in 12 GiB",
        [
            f"device {K40}; fit with policy and lowering of each; depth: of resnet:6,32,n3,6 at batch 16",
            "paper: tables 5 and 4",
        ],
        columns(names),
        rows,
        _MODEL_NOTES,
    )


def measured(path: Path = MEASURED) -> list[dict[str, Any]]:
    """What trained for real on an H200 in a 12 GiB arena (superneurons_scale); [] where nothing."""
    if not path.exists():
        return []
    rows = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    return [row for row in rows if row.get("measured_images_per_s")]


def scale(lab: Lab) -> Table:
    """Deeper and wider for real: predicted beside measured on an H200."""
    rows = [
        [
            f"ResNet-{_depth(row['network'])}" if ":" in row["network"] else row["network"],
            f"{row['batch']}",
            row["policy"],
            row["budget"],
            row.get("images_per_s"),
            row["measured_images_per_s"],
            row.get("measured_peak_bytes", 0) / GIB,
            row.get("host_bytes", 0) / GIB,
            row.get("losses", [None])[-1],
        ]
        for row in ([] if lab.dry else measured())
    ]
    return Table(
        "scale",
        "Deeper and wider for real on an H200",
        ["bench/h200/scale.jsonl, by superneurons_scale"],
        columns(
            [
                "network",
                "batch",
                "policy",
                "budget",
                "images/s, predicted|ours|.1f",
                "images/s, measured|ours|.1f",
                "arena GiB|ours|.2f",
                "host GiB|ours|.1f",
                "last loss|ours|.4f",
            ]
        ),
        rows,
    )
