"""How far a slower link explains what a fidelity table misses.

    python3 bench/link_factor.py RESULTS [--factors 1,0.95,0.91]    (PYTHONPATH=python)

RESULTS is the output folder of superneurons_fidelity. Every plan that was replayed there is planned
again and simulated on its profile with both directions of the link run at each factor of their rate;
per network the mean error of the training step is printed, and the worst.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from superneurons.program import find_program


def slower(profile: dict, factor: float) -> dict:
    """The profile with copies that take 1 / factor as long."""
    profile = json.loads(json.dumps(profile))
    for way in ("offload", "prefetch"):
        profile[way]["points"] = [[b, round(ns / factor)] for b, ns in profile[way]["points"]]
        profile[way]["bytes_per_ns"] *= factor
    if profile.get("both_bytes_per_ns"):
        profile["both_bytes_per_ns"] *= factor
    return profile


def replayed(results: Path) -> list[dict]:
    """Cells with a measured step, each plan once."""
    rows = [json.loads(line) for line in (results / "fidelity.jsonl").read_text().splitlines()]
    return [row for row in rows if "measured_step_ns" in row and row.get("same_as") is None]


def simulated(program: str, trace: Path, plan: Path, profile: Path, out: Path) -> int:
    command = [program, "simulate", trace, "--plan", plan, "--device", profile, "--json", out]
    subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL)
    return json.loads(out.read_text())["outcomes"][0]["step_ns"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--factors", default="1,0.95,0.91")
    options = parser.parse_args()
    factors = [float(word) for word in options.factors.split(",")]
    program = find_program()
    if program is None:
        print("link_factor: superneurons is not built", file=sys.stderr)
        return 2
    results, cells = options.results, replayed(options.results)
    profile = json.loads((results / "profile.json").read_text())
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        profiles = []
        for number, factor in enumerate(factors):
            profiles.append(scratch / f"profile-{number}.json")
            profiles[-1].write_text(json.dumps(slower(profile, factor)))
        errors: dict[tuple[str, float], list[float]] = {}
        for cell in cells:
            trace, plan = results / f"{cell['trace']}.jsonl.gz", scratch / "plan.jsonl"
            budget = ["--budget", f"{cell['budget_bytes']}B", "--host-budget", f"{profile['host_memory']}B"]
            command = [program, "plan", trace, "--policy", cell["policy"], *budget]
            command += ["--device", results / "profile.json", "-o", plan]
            subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL)
            for factor, path in zip(factors, profiles):
                step = simulated(program, trace, plan, path, scratch / "out.json")
                measured = cell["measured_step_ns"]
                errors.setdefault((cell["trace"], factor), []).append(100 * (step - measured) / measured)
    print("| network | link | plans | mean error | worst |\n|---|---|---|---|---|")
    for (trace, factor), found in sorted(errors.items()):
        mean, worst = sum(map(abs, found)) / len(found), max(found, key=abs)
        print(f"| {trace} | × {factor:g} | {len(found)} | {mean:.2f} % | {worst:+.1f} % |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
