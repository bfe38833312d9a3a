"""Where offloading stops paying and recomputing wins: policies under budgets on many devices.

    python3 bench/crossover.py traces/resnet50-b64.jsonl.gz -o crossover.json
    python3 -m superneurons.plot crossover crossover.json -o crossover.pdf      (PYTHONPATH=python)

Runs `superneurons compare` and `show` once per device profile, writes all outcomes as one JSON, and
prints for each device which policy wins at which budget, and the numbers that decide it: what the
link moves during a training step, and how many bytes a nanosecond of recomputing makes, by kind of
op. Times on devices other than the trace's are scaled by the roofline, as the output says.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python"))

from superneurons.crossover import FORMAT, explain, parse  # noqa: E402

DEVICES = "k40c-12gb,titan-xp,v100-16gb,a100-40gb,rtx4090,h200"
POLICIES = ["liveness_offload", "liveness_recompute", "offload_recompute", "recompute_offload"]
KEPT = (
    "policy", "trace", "budget_bytes", "placed_peak_bytes", "step_ns", "bound_ns", "compute_ns",
    "offload_bytes", "prefetch_bytes", "recompute_runs", "recompute_ns", "stall_ns",
)  # fmt: skip
BUDGETS = "100%,95%,90%,85%,80%,75%,70%,60%,50%,40%"


def call(program: str, *arguments: str, good: tuple[int, ...] = (0,)) -> dict:
    """The JSON that a command of the program writes."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "out.json"
        done = subprocess.run(
            [program, *arguments, "--json", str(file)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        if done.returncode not in good:
            raise SystemExit(done.stderr.strip())
        return json.loads(file.read_text())


def default_policies(program: str) -> str:
    """The plain compositions, SuperNeurons and its ablations."""
    known = [row["name"] for row in call(program, "policies")["compositions"]]
    return ",".join(
        name for name in known if name in POLICIES or name.startswith("superneurons")
    )


def device_row(options: argparse.Namespace, known: dict[str, dict], name: str) -> dict:
    """All outcomes on one device."""
    common = [options.trace, "--device", name]
    shown = call(options.program, "show", *common)
    result = call(
        options.program, "compare", *common, "--policies", options.policies,
        "--budgets", options.budgets, good=(0, 1),
    )  # fmt: skip
    about = known[name]
    liveness = next(b["bytes"] for b in result["bounds"] if b["name"] == "liveness")
    return {
        "name": name,
        "device": about["device"],
        "measured": about["measured"],
        "times": shown["origin"],
        "device_memory_bytes": about["device_memory_bytes"],
        "offload_bytes_per_ns": about["offload_bytes_per_ns"],
        "prefetch_bytes_per_ns": about["prefetch_bytes_per_ns"],
        "liveness_bytes": liveness,
        "kinds": shown["kinds"],
        "outcomes": [{key: row[key] for key in KEPT} for row in result["outcomes"]],
    }


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trace")
    parser.add_argument("--devices", default=DEVICES, help=f"profiles (default: {DEVICES})")
    parser.add_argument("--policies", help="(default: the compositions of these passes)")
    parser.add_argument("--budgets", default=BUDGETS, help="as of `superneurons compare`")
    parser.add_argument("--program", default=str(ROOT / "build" / "superneurons"))
    parser.add_argument("-o", "--output", required=True, help="JSON to write")
    options = parser.parse_args()
    options.policies = options.policies or default_policies(options.program)
    known = {row["name"]: row for row in call(options.program, "devices")["devices"]}
    devices = options.devices.split(",")
    missing = [name for name in devices if name not in known]
    if missing:
        raise SystemExit(f"no device profile {missing[0]} (there are {', '.join(known)})")

    def row_of(name: str) -> dict:
        row = device_row(options, known, name)
        print(f"crossover: {name} is done", file=sys.stderr)
        return row

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        rows = list(pool.map(row_of, devices))
    text = json.dumps(
        {
            "format": FORMAT,
            "version": "0.1",
            "trace": rows[0]["outcomes"][0]["trace"] if rows[0]["outcomes"] else options.trace,
            "policies": options.policies.split(","),
            "budgets": options.budgets.split(","),
            "devices": rows,
        },
        separators=(",", ":"),
    )
    Path(options.output).write_text(text + "\n")
    print(explain(parse(text, options.output)))


if __name__ == "__main__":
    main()
