#!/usr/bin/env python3
"""All that needs a GPU, as jobs: tests, then predicted beside measured. `./dev gpu` runs it.

    python3 bench/gpu.py --out build/gpu [--part 1/3] [--limit-s 540] [--only fidelity,pytorch]

Each job writes into the folder and is not repeated where it is done, so that the whole can be made in
as many runs as one likes, on the same machine: what is recorded on one GPU is replayed on that GPU.
Jobs with torch run where `--torch` (python3) can use it on a GPU, and say so where not.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MODELS = (
    "resnet50",
    "gpt2-medium",
    "vit-b16",
    "bert-base-amp",
    "unet",
    "lstm",
    "resnet50-accumulation",
    "gpt2-medium-checkpointing",
)
# Of other programs' traces: three policies under three budgets.
REPLAYED = ["--policies", "liveness,recompute_offload,superneurons_best", "--budgets", "100,80,60"]
FIT = "fit resnet50 --vary batch --budget 2GiB --policy superneurons_best --update arrive"


@dataclass
class Bench:
    """Where things are, and how much time is left."""

    options: argparse.Namespace
    out: Path
    begin: float = field(default_factory=time.monotonic)
    failed: list[str] = field(default_factory=list)

    def program(self, name: str) -> str:
        return str(Path(self.options.build).resolve() / name)

    def left(self) -> float:
        """Seconds; a day where there is no limit."""
        limit = self.options.limit_s or 86400.0
        return limit - (time.monotonic() - self.begin)

    def run(self, log: str, *command: str, wanted: bool = True) -> str | None:
        """What the command printed, also in OUT/LOG; None where it failed or ran out of time."""
        path = self.out / log
        path.parent.mkdir(parents=True, exist_ok=True)
        said = f"$ {' '.join(command)}\n"
        try:
            done = subprocess.run(
                command,
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=max(self.left(), 1),
                check=False,
            )
            said += done.stdout + f"exit code {done.returncode}\n"
            good = done.returncode == 0
        except (OSError, subprocess.TimeoutExpired) as error:
            said += f"{error}\n"
            good = False
        with path.open("a", encoding="utf-8") as file:
            file.write(said)
        if not good and wanted:
            print("\n".join(said.splitlines()[-4:]), file=sys.stderr)
        return said if good else None


@dataclass
class Job:
    """Something that ends. Shared jobs do a part of their work in each part of the whole."""

    name: str
    seconds: float  # about; it is not begun with less time left
    work: Callable[[Bench], bool]  # whether it is done
    shared: bool = False
    torch: bool = False


def tests(bench: Bench) -> bool:
    report = f"--gtest_output=json:{bench.out}/test_cuda.json"
    return bench.run("test_cuda.log", bench.program("tests/test_cuda"), report) is not None


def measure(bench: Bench, program: str, folder: str, *more: str) -> bool:
    """One of the resumable programs of bench/."""
    options = bench.options
    out = bench.out / folder
    out.mkdir(parents=True, exist_ok=True)
    limit = ["--limit-s", f"{bench.left() - 5:.0f}"] if options.limit_s else []
    command = [bench.program(f"bench/{program}"), "--out", str(out), "--on", options.on]
    said = bench.run(f"{folder}/log", *command, *limit, *more)
    return said is not None and "stopped in time" not in said


def part(bench: Bench) -> list[str]:
    return ["--part", bench.options.part]


def fidelity(bench: Bench) -> bool:
    networks = ["--networks", bench.options.networks, "--choice-steps", "3"]
    done = measure(bench, "superneurons_fidelity", "fidelity", *networks, *part(bench))
    table(bench, "fidelity")
    return done


def stress(bench: Bench) -> bool:
    (bench.out / "stress").mkdir(parents=True, exist_ok=True)
    for file in [*bench.out.glob("fidelity/*.gz"), *bench.out.glob("fidelity/profile.json")]:
        shutil.copy(file, bench.out / "stress")
    policies = "superneurons,superneurons_best,recompute_offload"
    cells = ["--stress", "--policies", policies, "--budgets", "60,floor", "--choice-steps", "3"]
    networks = ["--networks", bench.options.networks]
    return measure(bench, "superneurons_fidelity", "stress", *networks, *cells, *part(bench))


def scale(bench: Bench) -> bool:
    rows = ["--rows", str(ROOT / "bench" / "scale_rows.txt")]
    return measure(bench, "superneurons_scale", "scale", *rows, *part(bench))


def table(bench: Bench, folder: str) -> None:
    """The rows as Markdown, worst first."""
    rows = bench.out / folder / "fidelity.jsonl"
    if not rows.exists():
        return
    command = [sys.executable, "-m", "superneurons.fidelity", str(rows)]
    with (bench.out / f"{folder}.md").open("w", encoding="utf-8") as file:
        subprocess.run(command, stdout=file, cwd=ROOT / "python", check=False)


def digits(bench: Bench) -> bool:
    program, on = bench.program("superneurons"), ["--on", bench.options.on]
    trace = str(bench.out / "digits_resnet.jsonl.gz")
    recorded = bench.run("digits.log", program, "trace", "digits_resnet", "--rate", "0.05", *on, "-o", trace)
    how = ["--policy", "recompute_offload", "--budget", "floor", "--data", "digits", "--steps", "110"]
    result = ["--json", str(bench.out / "digits.json")]
    return recorded is not None and bench.run(
        "digits.log", program, "replay", trace, *how, *on, *result) is not None  # fmt: skip


def fit(bench: Bench) -> bool:
    result = ["--on", bench.options.on, "--json", str(bench.out / "fit.json")]
    return bench.run("fit.log", bench.program("superneurons"), *FIT.split(), *result) is not None


def speed(math: str) -> Callable[[Bench], bool]:
    """Ours against PyTorch eager: the same graph, math and search, in one go."""

    def work(bench: Bench) -> bool:
        network = ["--batch", "64"]
        ours = bench.run(
            f"speed-{math}.log", bench.program("superneurons"), "trace", "resnet50", *network,
            *(["--tf32"] if math == "tf32" else []), "--on", bench.options.on,
            "-o", str(bench.out / f"resnet50-b64-{math}.jsonl.gz"))  # fmt: skip
        theirs = bench.run(
            f"speed-{math}.log", bench.options.torch, str(ROOT / "bench" / "torch_baseline.py"),
            "--network", "resnet50", *network, "--math", math)  # fmt: skip
        return ours is not None and theirs is not None

    return work


def pytorch(model: str) -> Callable[[Bench], bool]:
    """A program as people run it: captured, checked, predicted, replayed with surrogates."""

    def work(bench: Bench) -> bool:
        folder = bench.out / "pytorch"
        folder.mkdir(parents=True, exist_ok=True)
        program, trace = bench.program("superneurons"), str(folder / f"{model}.jsonl.gz")
        script = [bench.options.torch, str(ROOT / "bench" / "pytorch_models.py"), "--model", model]
        log = f"pytorch/{model}.log"
        steps = [
            ["trace", "-o", trace, "--", *script, "--steps", "14"],
            ["check", trace, "--json", str(folder / f"{model}.check.json")],
            ["simulate", trace, "--policy", "recorded", "--clock", "program", "--allocator",
             "pytorch_caching", "--json", str(folder / f"{model}.recorded.json")],
        ]  # fmt: skip
        if any(bench.run(log, program, *step) is None for step in steps):
            return False
        more = ["--traces", trace, *REPLAYED, "--steps", "8", "--by-kind"]
        done = measure(bench, "superneurons_fidelity", "pytorch", *more)
        table(bench, "pytorch")
        return done

    return work


def cuda_program(bench: Bench) -> bool:
    """A program that knows nothing of us, with all that programs do; exit codes are its own."""
    program, sample = bench.program("superneurons"), bench.program("tests/superneurons_traced_program")
    folder = bench.out / "program"
    folder.mkdir(parents=True, exist_ok=True)
    cases = {
        "plain": [], "nvtx": ["--nvtx"], "async": ["--async"], "mapped": ["--mapped"],
        "killed": ["--kill-at", "10"], "exit7": ["--exit", "7"], "fork": ["--fork"], "exec": ["--exec"],
    }  # fmt: skip
    for name, how in cases.items():
        trace = str(folder / f"{name}.jsonl")
        window = ["--window", "range:step"] if name == "nvtx" else []
        command = [program, "trace", "-o", trace, *window, "--", sample, "--steps", "20", *how]
        bench.run("program.log", *command, wanted=name not in ("killed", "exit7"))
        if Path(trace).exists():
            bench.run("program.log", program, "check", trace)
    return (folder / "plain.jsonl").exists()


JOBS = [
    Job("tests", 30, tests),
    Job("fidelity", 60, fidelity, shared=True),
    Job("stress", 60, stress, shared=True),
    Job("digits", 30, digits),
    Job("fit", 60, fit),
    *(Job(f"speed-{math}", 60, speed(math), torch=True) for math in ("fp32", "tf32")),
    *(Job(f"pytorch-{model}", 60, pytorch(model), torch=True) for model in MODELS),
    Job("program", 60, cuda_program),
    Job("scale", 120, scale, shared=True),
]


def chosen(options: argparse.Namespace) -> list[Job]:
    """Jobs of this part: every n-th, and all shared ones."""
    number, parts = (int(each) for each in options.part.split("/"))
    names = options.only.split(",") if options.only else []
    alone = [job.name for job in JOBS if not job.shared]
    return [
        job
        for job in JOBS
        if (job.shared or alone.index(job.name) % parts == number - 1)
        and (not names or job.name in names or job.name.split("-")[0] in names)
    ]


def torch_missing(python: str) -> str:
    """Why programs with torch cannot run on a GPU here; "": they can."""
    ask = "import torch; assert torch.cuda.is_available(), 'torch sees no GPU'"
    try:
        asked = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=False)
    except OSError as error:
        return str(error)
    return "" if asked.returncode == 0 else asked.stderr.strip().splitlines()[-1]


def run_job(bench: Bench, job: Job) -> bool:
    """Whether there was time for it."""
    part = f"-{bench.options.part.replace('/', 'of')}" if job.shared else ""
    done = bench.out / "done" / f"{job.name}{part}"
    if done.exists():
        return True
    if bench.left() < job.seconds:
        return False
    print(f"{time.monotonic() - bench.begin:.0f} s: {job.name}", file=sys.stderr)
    if job.work(bench):
        done.parent.mkdir(parents=True, exist_ok=True)
        done.touch()
        return True
    in_time = bench.left() > 10
    if in_time:
        bench.failed.append(job.name)
    return in_time


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=str(ROOT / "build" / "gpu"), help="folder of results")
    parser.add_argument("--build", default=str(ROOT / "build"), help="folder of the programs")
    parser.add_argument("--part", default="1/1", help="k/n: a part of the work")
    parser.add_argument("--limit-s", type=float, default=0, help="stop before that many seconds")
    parser.add_argument("--only", help="jobs, or their first words, with commas: see --list")
    parser.add_argument("--list", action="store_true", help="print the jobs and do nothing")
    parser.add_argument("--torch", default="python3", help="a Python that has torch")
    parser.add_argument("--on", default="cuda", choices=["cuda", "host"])
    parser.add_argument("--networks", default="alexnet:128,resnet50:64,vgg16:64,resnet152:32")
    options = parser.parse_args()
    try:
        jobs = chosen(options)
    except ValueError:
        parser.error(f"--part {options.part} is not of the form k/n, for example 1/3")
    if not jobs:
        parser.error(f"no job {options.only} in part {options.part}; there are "
                     + ", ".join(job.name for job in JOBS))  # fmt: skip
    if options.list:
        print("\n".join(job.name for job in jobs))
        return 0
    bench = Bench(options, Path(options.out).resolve())
    bench.out.mkdir(parents=True, exist_ok=True)
    missing = torch_missing(options.torch) if any(job.torch for job in jobs) else ""
    for job in jobs:
        if job.torch and missing:
            print(f"skipped: {job.name}: {missing}", file=sys.stderr)
        elif not run_job(bench, job):
            print("stopped in time: run again to go on", file=sys.stderr)
            break
    for name in bench.failed:
        print(f"failed: {name}", file=sys.stderr)
    print(f"results: {bench.out}", file=sys.stderr)
    return 1 if bench.failed else 0


if __name__ == "__main__":
    sys.exit(main())
