"""How much memory and time a large raw capture of a PyTorch program takes to become a trace.

    python3 bench/raw_stream.py --gigabytes 2 --memory 1

writes the raw capture of a made-up training program on a GPU (15,000 ops a training step, as GPT-2
medium has) with the log of its kernels, that many GB together, and converts it with that many GiB of
address space.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OPS = 15_000
WEIGHTS = 300
HEADER = (
    '{"r":"header","format":"superneurons-capture","version":"0.1","device":"cuda","torch":"2.11.0",'
    '"device_name":"made up","name":"train.py","activities":true,"memory":true,"options":{}}\n'
)


def training_step(step, first, ops):
    """The lines of one training step, whose new storages are numbered from `first` on: half of the
    ops are forward and make a tensor each, which half of them, in backward, read and end."""
    name = '"name":"0:layer{0}.weight","m":{0}'
    lines = [f'{{"r":"state","s":{w},"role":"parameter",{name.format(w)}}}\n' for w in range(WEIGHTS)]
    lines.append(f'{{"r":"step","step":{step},"allocated":{1 << 30}}}\n')
    half = ops // 2
    for i in range(half):
        new, weight = first + i, i % WEIGHTS
        read = f"[[{weight},0,65536]" + (f",[{new - 1},0,65536]]" if i else "]")
        lines += (
            f'{{"r":"storage","s":{new},"bytes":65536,"dtype":"f32","shape":[128,128]}}\n',
            f'{{"r":"call","c":{i},"kind":"aten::addmm","phase":"forward","m":{weight},"in":{read},'
            f'"out":[[{new},0,65536]],"host":21000,"makes":[{new}],"before":[3000,2]}}\n',
        )
    for i in range(half):
        old, weight = first + half - 1 - i, (half - 1 - i) % WEIGHTS
        lines += (
            f'{{"r":"call","c":{half + i},"kind":"aten::addmm_","phase":"backward","m":{weight},'
            f'"in":[[{old},0,65536],[{weight},0,65536]],"out":[[{weight},0,65536]],"host":23000}}\n',
            f'{{"r":"free","s":{old}}}\n',
        )
    lines += [f'{{"r":"memory","c":{i},"workspace":8192}}\n' for i in range(0, ops, 8)]
    lines.append(f'{{"r":"step_end","step":{step},"ns":350000000}}\n')
    return lines


def kernels(step, ops):
    now = 400_000_000 * step
    for i in range(ops // 2 * 2):
        tag = (step + 1) << 32 | i
        for part in ("gemm", "add"):
            now += 9000
            yield f'{{"tag":{tag},"name":"{part}_kernel_{i % 97}","start":{now},"end":{now + 8000}}}\n'


def write_capture(folder, size, ops=OPS):
    """About `size` bytes; the number of training steps."""
    written = step = 0
    with (
        open(folder / "capture.1.jsonl", "w", encoding="utf-8") as capture,
        open(folder / "activities.1.jsonl", "w", encoding="utf-8") as log,
    ):
        written += capture.write(HEADER)
        for i in range(WEIGHTS):
            capture.write(
                f'{{"r":"module","id":{i},"root":0,"path":"layer{i}","class":"Linear","weights":true}}\n'
                f'{{"r":"storage","s":{i},"bytes":65536,"dtype":"f32","shape":[128,128]}}\n'
            )
        while written < size:
            written += capture.write("".join(training_step(step, WEIGHTS + step * ops, ops)))
            written += log.write("".join(kernels(step, ops)))
            step += 1
        capture.write('{"r":"untouched","ns":[300000000],"host_ns":[290000000]}\n{"r":"end"}\n')
        log.write(f'{{"r":"end","activities":{step * ops * 2},"dropped":0}}\n')
    return step


def convert(folder, trace, address_space):
    """The finished process; it had `address_space` bytes at most."""

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))

    return subprocess.run(
        [sys.executable, "-m", "superneurons.convert", folder, "-o", trace],
        preexec_fn=limit, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=2)
    parser.add_argument("--memory", type=float, default=1, help="GiB of address space")
    parser.add_argument("--ops", type=int, default=OPS, help="of a training step")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        steps = write_capture(folder, arguments.gigabytes * 1e9, arguments.ops)
        size = sum(each.stat().st_size for each in folder.iterdir())
        begin = time.monotonic()
        done = convert(folder, folder / "t.jsonl.gz", int(arguments.memory * 2**30))
        seconds = time.monotonic() - begin
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        print(done.stderr.strip())
        print(
            f"{size / 1e9:.2f} GB of {steps} training steps with {arguments.ops} ops: {seconds:.1f} s, "
            f"{used.ru_maxrss / 1024:.0f} MiB at most"
        )
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
