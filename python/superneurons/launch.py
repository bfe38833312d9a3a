"""Runs a PyTorch program, unedited, and writes a trace of its training steps:

    python -m superneurons.launch -o t.jsonl.gz -- python train.py --its --options

What `superneurons trace -o t.jsonl.gz -- python train.py` does. The program keeps its input, output and
exit code, and goes on to its own end.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from superneurons.convert import convert_all, raw_files
from superneurons.files import BadInput
from superneurons.program import find_library

_HERE = os.path.dirname(os.path.abspath(__file__))


def say(text: str) -> None:
    print(f"superneurons: {text}", file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="superneurons trace", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    add = parser.add_argument
    add("-o", "--output", required=True, help="trace to write")
    add("--warmup", type=int, default=3, help="training steps left alone first")
    add("--steps", type=int, default=3, help="training steps that are watched")
    add("--untouched", type=int, default=5, help="training steps after them that give the true time")
    add("--stop-after", action="store_true", help="end the program when all is captured")
    add("--strip-recompute", action="store_true",
        help="without what activation checkpointing computes again")  # fmt: skip
    add("--offload-capture", action="store_true",
        help="tensors saved for backward live on the host, so that a model runs that does not fit")  # fmt: skip
    add("--name", default="", help="of the trace (default: the script's)")
    add("--batch", type=int, default=0, help="samples in a training step, for the header")
    add("--keep-raw", default="", metavar="FOLDER", help="keep what the trace is made from")
    add("--library", dest="collector", default=None, help="the CUPTI collector (default: where it was built)")
    add("--device", default="", choices=["", "cuda", "cpu"], help="default: CUDA where it is used")
    parser.usage = "%(prog)s -o FILE [options] -- COMMAND ..."
    return parser


def _environment(folder: str, options: argparse.Namespace) -> dict[str, str]:
    environment = dict(os.environ)
    collector = find_library() if options.collector is None else options.collector
    environment["SUPERNEURONS_CAPTURE"] = json.dumps(
        {
            "folder": folder, "warmup": options.warmup, "steps": options.steps,
            "untouched": options.untouched, "stop_after": options.stop_after,
            "offload": options.offload_capture, "collector": collector or "", "name": options.name,
            "device": options.device,
        }
    )  # fmt: skip
    paths = [os.path.join(_HERE, "hook"), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    environment["TORCHDYNAMO_DISABLE"] = "1"
    return environment


def _run(command: Sequence[str], environment: dict[str, str]) -> int:
    """The exit code, 128 + signal where one ended it. Ctrl-C reaches the program too, for it is in
    our process group; what else would end us is passed on."""
    for interrupt in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(interrupt, lambda *_: None)  # a handler, not SIG_IGN: that is inherited
    try:
        child = subprocess.Popen(command, env=environment)
    except OSError as error:
        raise BadInput(f"{command[0]} cannot be started ({error.strerror})") from None
    for passed_on in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(passed_on, lambda number, _: child.send_signal(number))
    code = child.wait()
    return code if code >= 0 else 128 - code


def _told(folder: str) -> list[dict[str, Any]]:
    """What the processes said when they ended, those with training steps first."""
    told = []
    for name in sorted(os.listdir(folder)):
        if name.startswith("status."):
            with contextlib.suppress(OSError, ValueError), open(os.path.join(folder, name)) as file:
                told.append(json.load(file))
    return sorted(told, key=lambda each: -int(each.get("steps", 0)))


def _nothing(folder: str, options: argparse.Namespace) -> str:
    """Why nothing was captured."""
    told = _told(folder)
    if not told:
        return ("it did not import PyTorch, or ended without saying so (a program that is no Python: "
                "superneurons trace --program)")  # fmt: skip
    steps, reason = told[0].get("steps", 0), told[0].get("reason", "")
    if steps == 0:
        return ("no optimizer made a step, and superneurons.training_step() was not called, which "
                "marks the end of a training step where no optimizer does")  # fmt: skip
    if str(reason).startswith("the program ended"):
        return f"{reason}, before there was one to watch (after --warmup {options.warmup})"
    return str(reason)


def launch(words: Sequence[str]) -> int:
    """Options, --, command."""
    split = words.index("--") if "--" in words else len(words)
    options, command = _parser().parse_args(words[:split]), list(words[split + 1 :])
    if not command:
        raise BadInput("no command follows -- (would be -o FILE -- COMMAND ...)")
    for name, least in (("warmup", 1), ("steps", 1), ("untouched", 0), ("batch", 0)):
        if getattr(options, name) < least:
            raise BadInput(f"--{name} {getattr(options, name)} (would be at least {least})")
    folder = options.keep_raw
    if folder:
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as error:
            raise BadInput(f"cannot be made ({error.strerror})", folder) from None
        if raw_files(folder):
            raise BadInput("holds a raw capture already (would be a new folder)", folder)
        folder = os.path.abspath(folder)
    else:
        folder = tempfile.mkdtemp(prefix="superneurons-")
    try:
        code = _run(command, _environment(folder, options))
        written = _convert(folder, options, command[0])
    finally:
        if not options.keep_raw:
            shutil.rmtree(folder, ignore_errors=True)
    return code if code != 0 or written else 2


def _convert(folder: str, options: argparse.Namespace, program: str) -> bool:
    if not raw_files(folder):
        say(f"{program}: nothing was captured: {_nothing(folder, options)}")
        return False
    try:
        reports = convert_all(folder, options.output, name=options.name, batch=options.batch,
                              strip_recompute=options.strip_recompute)  # fmt: skip
    except BadInput as error:
        say(str(error))
        return False
    for report in reports:
        for line in report.lines():
            say(line)
    return True


def main() -> int:
    try:
        return launch(sys.argv[1:])
    except BadInput as error:
        say(str(error))
        return 2


if __name__ == "__main__":
    sys.exit(main())
