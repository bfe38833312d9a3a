"""How much memory and time a large activity log takes to become a trace.

    python3 bench/activity_stream.py --gigabytes 2 --memory 1

writes a log of a made-up training program (2000 kernels a step, each in a range, with allocations)
and converts it; more than that many GB of resident memory is a failure.
"""

import argparse
import os
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


def convert(log, trace, program):
    """Exit code, what it said, seconds of CPU, and the largest resident memory in bytes."""
    with tempfile.TemporaryFile("w+") as said:
        started = subprocess.Popen([program, "convert", log, "-o", trace], stderr=said)
        _, status, used = os.wait4(started.pid, 0)
        started.returncode = os.waitstatus_to_exitcode(status)  # it is waited for
        said.seek(0)
        return started.returncode, said.read(), used.ru_utime + used.ru_stime, used.ru_maxrss * 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=2)
    parser.add_argument("--memory", type=float, default=1, help="GB it may take at most")
    arguments = parser.parse_args()
    program = os.environ.get("SUPERNEURONS", ROOT / "build" / "superneurons")
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        kernels, steps = write_log(log, arguments.gigabytes * 1e9)
        begin = time.monotonic()
        code, said, cpu, memory = convert(log, Path(folder) / "t.jsonl.gz", program)
        seconds = time.monotonic() - begin
        print(said.strip())
        print(
            f"{log.stat().st_size / 1e9:.2f} GB of {kernels} kernels in {steps} steps: "
            f"{seconds:.1f} s, {cpu:.1f} s of CPU, {memory / 1e6:.0f} MB at most"
        )
    return code or int(memory > arguments.memory * 1e9)


if __name__ == "__main__":
    sys.exit(main())
