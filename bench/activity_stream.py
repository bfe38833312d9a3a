"""How much memory and time a large activity log takes to become a trace.

    python3 bench/activity_stream.py --gigabytes 2 --memory 1

writes a log of a made-up training program (2000 kernels a step, each in a range, with allocations)
and converts it with that many GiB of address space.
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
KERNELS = 2000


def write_log(path, size):
    """About `size` bytes; returns kernels and training steps."""
    ids = {}
    step = 0
    with open(path, "w", encoding="utf-8") as file:
        written = file.write('{"r":"header","format":"superneurons-activities","version":"0.1"}\n')

        def name(text):
            nonlocal written
            if text not in ids:
                ids[text] = len(ids)
                written += file.write(f'{{"r":"name","id":{ids[text]},"text":"{text}"}}\n')
            return ids[text]

        launch = name("cudaLaunchKernel")
        kernels = [name(f"kernel{i * i % 301}") for i in range(KERNELS)]
        ranges = [name(f"layer{i % 50}") for i in range(KERNELS)]
        while written < size:
            lines = []
            for i in range(KERNELS):
                call = step * KERNELS + i + 1
                now = 100 * call
                lines += [
                    f'{{"r":"open","range":{2 * call},"name":{ranges[i]},"thread":9,"at":{now}}}\n',
                    f'{{"r":"call","name":{launch},"call":{call},"thread":9,"start":{now + 1},'
                    f'"end":{now + 40}}}\n',
                    f'{{"r":"kernel","name":{kernels[i]},"call":{call},"stream":7,'
                    f'"start":{now + 500},"end":{now + 590}}}\n',
                    f'{{"r":"close","range":{2 * call},"at":{now + 60}}}\n',
                ]
                if i % 50 == 0:
                    verb = "allocate" if i % 100 == 0 else "free"
                    address = 140000000000 + (i // 100 << 20)
                    lines.append(
                        f'{{"r":"{verb}","address":{address},"bytes":1048576,"at":{now}}}\n'
                    )
            step += 1
            written += file.write("".join(lines))
        file.write(f'{{"r":"end","activities":{step * KERNELS},"dropped":0}}\n')
    return step * KERNELS, step


def convert(log, trace, address_space, program):
    """The finished process; it had `address_space` bytes at most."""

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))

    return subprocess.run(
        [program, "convert", log, "-o", trace],
        preexec_fn=limit,
        capture_output=True,
        text=True,
        check=False,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=2)
    parser.add_argument("--memory", type=float, default=1, help="GiB of address space")
    arguments = parser.parse_args()
    program = os.environ.get("SUPERNEURONS", ROOT / "build" / "superneurons")
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        kernels, steps = write_log(log, arguments.gigabytes * 1e9)
        begin = time.monotonic()
        done = convert(log, Path(folder) / "t.jsonl.gz", int(arguments.memory * 2**30), program)
        seconds = time.monotonic() - begin
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        print(done.stderr.strip())
        print(
            f"{log.stat().st_size / 1e9:.2f} GB of {kernels} kernels in {steps} steps: "
            f"{seconds:.1f} s, {used.ru_utime + used.ru_stime:.1f} s of CPU, "
            f"{used.ru_maxrss / 1024:.0f} MiB at most"
        )
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
