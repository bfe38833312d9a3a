"""Runs a PyTorch program, unedited, and writes a trace of its training steps:

    python -m superneurons.launch -o t.jsonl.gz -- python train.py --its --options

What `superneurons trace -o t.jsonl.gz -- python train.py` does. The program keeps its input, output and
exit code, and goes on to its own end. Exit code 0 becomes 2 where there is no trace; 127: there is no
such program, 126: it cannot be started.
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
from dataclasses import dataclass
from typing import Any

from superneurons.convert import convert_all, keep, raw_files
from superneurons.files import BadInput, check_writable
from superneurons.program import find_library, find_program

_HERE = os.path.dirname(os.path.abspath(__file__))


_TO_ALL = (signal.SIGINT, signal.SIGQUIT)
_PASSED_ON = (signal.SIGTERM, signal.SIGHUP)


def say(text: str) -> None:
    print(f"superneurons: {text}", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Called:
    """What the user called us by: in messages."""

    name: str
    convert: str


PROGRAM = Called("superneurons trace", "superneurons convert")
MODULE = Called("python -m superneurons.launch", "python -m superneurons.convert")


class CannotStart(Exception):
    """With the exit code that a shell gives."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def _parser(called: Called) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=called.name, description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    add = parser.add_argument
    add("-o", "--output", required=True, help="trace to write")
    add("--warmup", type=int, default=3, help="training steps left alone first")
    add("--steps", type=int, default=3, help="training steps that are watched")
    add(
        "--untouched", type=int, default=5, help="training steps after them that give the true time"
    )
    add("--stop-after", action="store_true", help="end the program when all is captured")
    add("--strip-recompute", action="store_true",
        help="without what activation checkpointing computes again")  # fmt: skip
    add("--offload-capture", action="store_true",
        help="tensors saved for backward live on the host, so that a model runs that does not fit")  # fmt: skip
    add("--compiled", action="store_true",
        help="what torch.compile made stays compiled: kernels and memory, not what ops access")  # fmt: skip
    add("--name", default="", help="of the trace (default: the script's)")
    add("--batch", type=int, default=0, help="samples in a training step, for the header")
    add("--keep-raw", default="", metavar="FOLDER", help="keep what the trace is made from")
    add(
        "--library",
        dest="collector",
        default=None,
        help="the CUPTI collector (default: where it was built)",
    )
    add("--device", default="", choices=["", "cuda", "cpu"], help="default: CUDA where it is used")
    add("--superneurons", default="", metavar="PROGRAM",
        help="the program that makes traces of kernels, for --compiled (default: where it was built)")  # fmt: skip
    parser.usage = "%(prog)s -o FILE [options] -- COMMAND ..."
    return parser


def _environment(folder: str, options: argparse.Namespace) -> dict[str, str]:
    environment = dict(os.environ)
    environment["SUPERNEURONS_CAPTURE"] = json.dumps(
        {
            "folder": folder, "warmup": options.warmup, "steps": options.steps,
            "untouched": options.untouched, "stop_after": options.stop_after,
            "offload": options.offload_capture, "compiled": options.compiled,
            "collector": options.collector, "name": options.name, "device": options.device,
        }
    )  # fmt: skip
    paths = [os.path.join(_HERE, "hook"), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    return environment


def _run(command: Sequence[str], environment: dict[str, str]) -> int:
    """The exit code, 128 + signal where one ended it. Ctrl-C reaches the program too, for it is in
    our process group; what else would end us is passed on."""
    before = {each: signal.getsignal(each) for each in (*_TO_ALL, *_PASSED_ON)}
    for interrupt in _TO_ALL:
        signal.signal(interrupt, lambda *_: None)  # a handler, not SIG_IGN: that is inherited
    try:
        child = subprocess.Popen(command, env=environment)
        for passed_on in _PASSED_ON:
            signal.signal(passed_on, lambda number, _: child.send_signal(number))
        code = child.wait()
    except FileNotFoundError:
        raise CannotStart(f"{command[0]}: not found (would be a program on the PATH, or its path)",
                          127) from None  # fmt: skip
    except OSError as error:
        raise CannotStart(f"{command[0]}: cannot be started ({error.strerror})", 126) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code


def _told(folder: str) -> list[dict[str, Any]]:
    """What the processes said when they ended, those with training steps first."""
    told = []
    for name in sorted(os.listdir(folder)):
        if name.startswith("status."):
            with contextlib.suppress(OSError, ValueError), open(os.path.join(folder, name)) as file:
                told.append(json.load(file))
    return sorted(told, key=lambda each: -int(each.get("steps", 0)))


def _nothing(folder: str, options: argparse.Namespace, code: int) -> str:
    """Why nothing was captured."""
    told = _told(folder)
    killed = f", killed by signal {code - 128}" if code > 128 else ""
    if not told:
        return (f"it did not import PyTorch before it ended{killed} (of a program that is no PyTorch: "
                "superneurons trace --program)")  # fmt: skip
    steps, reason = told[0].get("steps", 0), str(told[0].get("reason", ""))
    if steps == 0 and any(each.get("failed") for each in told):
        return "the capture could not begin (why was said when PyTorch was imported)"
    if not told[0].get("ended"):
        return (f"it ended without saying so{killed or ', as with os._exit()'}, when it was still in "
                f"warm-up, after {steps} training steps (--warmup {options.warmup})")  # fmt: skip
    if steps == 0:
        return ("no optimizer made a step, and superneurons.training_step() was not called, which "
                "marks the end of a training step where no optimizer does")  # fmt: skip
    if reason.startswith("the program ended"):
        return f"{reason}, before there was one to watch (after --warmup {options.warmup})"
    return reason


def launch(words: Sequence[str], called: Called) -> int:
    """Options, --, command. The exit code; BadInput and CannotStart before the program runs."""
    split = words.index("--") if "--" in words else len(words)
    options, command = _parser(called).parse_args(words[:split]), list(words[split + 1 :])
    if not command:
        raise BadInput("no command follows -- (would be -o FILE -- COMMAND ...)")
    for name, least in (("warmup", 1), ("steps", 1), ("untouched", 0), ("batch", 0)):
        if getattr(options, name) < least:
            raise BadInput(f"--{name} {getattr(options, name)} (would be at least {least})")
    if options.collector is None:
        options.collector = find_library() or ""
    if options.compiled:
        _check_compiled(options)
    if options.collector and not os.path.exists(options.collector):
        raise BadInput("there is no such library (would be libsuperneurons_cupti.so)",
                       options.collector)  # fmt: skip
    check_writable(options.output)
    folder = _raw_folder(options.keep_raw)
    try:
        code = _run(command, _environment(folder, options))
        kept = raw_files(folder)
        if kept:
            written = _convert(folder, options, called)
        else:
            say(f"{command[0]}: nothing was captured: {_nothing(folder, options, code)}")
            written = False
    except CannotStart:
        kept, written = [], False
        raise
    except BaseException:  # Ctrl-C while it converts
        kept, written = raw_files(folder), False
        raise
    finally:
        if kept and not written:
            say(keep(folder, options.output, called.convert))
        elif not options.keep_raw:
            shutil.rmtree(folder, ignore_errors=True)
    return code if code != 0 or written else 2


def _check_compiled(options: argparse.Namespace) -> None:
    for name in ("strip_recompute", "offload_capture"):
        if getattr(options, name):
            raise BadInput(f"--{name.replace('_', '-')} does not go with --compiled")
    if not options.collector:
        raise BadInput("--compiled needs libsuperneurons_cupti.so, which is built where CUDA is "
                       "(--library names it)")  # fmt: skip
    if not (options.superneurons or find_program()):
        raise BadInput("--compiled needs the `superneurons` program (--superneurons names it)")


def _raw_folder(named: str) -> str:
    """Where the program writes: the folder that was named, or a temporary one."""
    if not named:
        return tempfile.mkdtemp(prefix="superneurons-")
    try:
        os.makedirs(named, exist_ok=True)
    except OSError as error:
        raise BadInput(f"cannot be made ({error.strerror})", named) from None
    if raw_files(named):
        raise BadInput("holds a raw capture already (would be a new folder)", named)
    check_writable(os.path.join(named, "capture"))
    return os.path.abspath(named)


def _convert(folder: str, options: argparse.Namespace, called: Called) -> bool:
    """Whether all that was captured has become a trace."""
    problems: list[BadInput] = []
    try:
        reports = convert_all(folder, options.output, name=options.name, batch=options.batch,
                              strip_recompute=options.strip_recompute, problems=problems,
                              program=options.superneurons)  # fmt: skip
    except Exception as error:  # noqa: BLE001
        say(f"{options.output}: no trace ({type(error).__name__}: {error})")
        return False
    for report in reports:
        for line in report.lines():
            say(line)
    for problem in problems:
        say(str(problem))
    return not problems


def main(called: Called = MODULE) -> int:
    try:
        return launch(sys.argv[1:], called)
    except BadInput as error:
        say(str(error))
        return 2
    except CannotStart as error:
        say(str(error))
        return error.code
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
