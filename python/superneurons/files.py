"""Whole files in and out: errors with their place, gzip by name, temporary name and rename."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from typing import Any

FORMAT_VERSION = "0.1"
LONGEST_LINE = 16 << 20  # bytes
DEEPEST_JSON = 16  # levels of arrays and objects


class BadInput(ValueError):
    """A file, or a value in it, is wrong: what is wrong (what would be right)."""

    def __init__(self, message: str, file: str = "", line: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.file = file  # "" where no file is involved
        self.line = line  # counted from 1; 0 where there is none

    def __str__(self) -> str:
        place = f"{self.file}:" if self.file else ""
        place += f"{self.line}:" if self.line else ""
        return f"{place} {self.message}" if place else self.message


def read_bytes(path: str) -> bytes:
    """The content of a file, unpacked if its name ends in .gz; "-" is standard input."""
    try:
        if path == "-":
            return sys.stdin.buffer.read()
        with open(path, "rb") as file:
            data = file.read()
        return gzip.decompress(data) if path.endswith(".gz") else data
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadInput(f"is damaged gzip ({error})", path) from None
    except OSError as error:
        raise BadInput(f"cannot be read ({error.strerror})", path) from None


def lines_of(data: bytes, name: str) -> Iterator[tuple[int, str]]:
    """The lines that are not blank, with their numbers counted from 1."""
    for number, line in enumerate(data.split(b"\n"), 1):
        if len(line) > LONGEST_LINE:
            raise BadInput(
                f"is a line of {len(line)} bytes (would be at most {LONGEST_LINE})", name, number
            )
        if line.strip(b" \t\r"):
            try:
                yield number, line.decode("utf-8")
            except UnicodeDecodeError:
                raise BadInput("is not UTF-8", name, number) from None


def parse_json(text: str) -> Any:
    """One JSON value. ValueError if it is none, BadInput if an object has a key twice."""

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(pairs) != len(value):
            keys = sorted(key for key, _ in pairs)
            twice = next(a for a, b in zip(keys, keys[1:]) if a == b)
            raise BadInput(f"the key {json.dumps(twice)} occurs twice in an object (would be once)")
        return value

    def no_number(name: str) -> None:
        raise ValueError(f"{name} is no JSON number")

    try:
        value = json.loads(text, object_pairs_hook=members, parse_constant=no_number)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, " if "\n" in text.rstrip() else ""
        raise ValueError(f"{where}column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if text.count("[") + text.count("{") > DEEPEST_JSON and _depth(value) > DEEPEST_JSON:
        raise ValueError(f"nested too deeply (at most {DEEPEST_JSON} levels)")
    return value


def json_problem(error: ValueError) -> str:
    """What parse_json found wrong, for messages."""
    return error.message if isinstance(error, BadInput) else f"is not JSON: {error}"


def _depth(value: Any) -> int:
    if isinstance(value, dict):
        value = list(value.values())
    return 1 + max(map(_depth, value), default=0) if isinstance(value, list) else 0


# What the program and this package write, in words.
_FORMS = {
    "superneurons-trace": "a trace",
    "superneurons-plan": "a plan",
    "superneurons-profile": "a device profile",
    "superneurons-result": "a result of compare, simulate or replay",
    "superneurons-memory": "memory over plan steps, of simulate --memory",
    "superneurons-layer-steps": "memory over layer steps, of simulate --layer-steps",
    "superneurons-show": "a result of show",
    "superneurons-check": "a result of check",
    "superneurons-fit": "a result of fit",
    "superneurons-crossover": "a result of bench/crossover.py",
    "superneurons-activities": "a tracer's log, from which convert makes a trace",
    "superneurons-capture": "a raw capture of PyTorch, from which convert makes a trace",
}


def what_it_is(value: Any) -> str:
    """What a JSON value says that it is; "" where it says nothing."""
    if not isinstance(value, dict):
        return ""
    if "format" not in value:
        return "is a timeline for Perfetto" if "traceEvents" in value else ""
    form = value["format"]
    words = f", {_FORMS[form]}" if isinstance(form, str) and form in _FORMS else ""
    return f"the format is {json.dumps(form)}{words}"


def what_file_it_is(data: bytes) -> str:
    """The same of a file, one JSON object or JSON Lines."""
    for text in (data, data.split(b"\n", 1)[0]):
        with contextlib.suppress(ValueError):
            return what_it_is(parse_json(text.decode("utf-8")))
    return ""


def wanted_form(format: str) -> str:
    """What a file would be, for messages."""
    words = f"{_FORMS[format]}, " if format in _FORMS else ""
    return f' (would be {words}"format":"{format}" and "version":"{FORMAT_VERSION}")'


def not_json(error: ValueError, data: bytes, format: str) -> str:
    """What is wrong with a text in which parse_json found `error`: it may be another file of ours."""
    other = what_file_it_is(data)
    return other + wanted_form(format) if other else json_problem(error)


def read_json_object(path: str, format: str) -> dict[str, Any]:
    """A file that is one JSON object whose "format" is `format`; BadInput otherwise."""
    data = read_bytes(path)
    value: dict[str, Any]
    try:
        value = parse_json(data.decode("utf-8"))
    except ValueError as error:
        raise BadInput(not_json(error, data, format), path) from None
    problem = header_problem(value, format)
    if problem:
        raise BadInput(problem, path, 1)
    return value


def header_problem(header: Any, format: str) -> str:
    """What is wrong with "format" and "version" of a header, or "". Any 0.x is read."""
    wanted = wanted_form(format)
    if not isinstance(header, dict):
        return "is no JSON object" + wanted
    if header.get("format") != format:
        return (what_it_is(header) or 'the header lacks "format"') + wanted
    version = header.get("version")
    major, dot, minor = version.partition(".") if isinstance(version, str) else ("", "", "")
    if not (dot and major.isdecimal() and minor.isdecimal()):
        return f"the version is {json.dumps(version)}" + wanted
    if int(major) > 0:
        return f"version {version} is newer than this package (would be 0.x)"
    return ""


@contextlib.contextmanager
def replacing(path: str) -> Iterator[str]:
    """A temporary name beside `path` to write to; becomes `path`, or goes at an error."""
    folder, name = os.path.split(path)
    stem, extension = os.path.splitext(name)
    try:
        handle, temporary = tempfile.mkstemp(
            prefix=f".{stem}.", suffix=extension, dir=folder or "."
        )
    except OSError as error:
        raise BadInput(f"cannot be written ({error.strerror})", path) from None
    os.close(handle)
    try:
        yield temporary
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def check_writable(path: str) -> None:
    """BadInput if a file cannot be written there, before any work is done for it. "-" always can."""
    if path == "-":
        return
    if os.path.isdir(path):
        raise BadInput("cannot be written (it is a folder)", path)
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise BadInput(f"cannot be written (there is no folder {folder})", path)
    try:
        handle, temporary = tempfile.mkstemp(prefix=".superneurons-", dir=folder)
    except OSError as error:
        raise BadInput(f"cannot be written ({error.strerror})", path) from None
    os.close(handle)
    os.unlink(temporary)


def write_text(path: str, text: str) -> None:
    """Replaces a file, packed without name and date if it ends in .gz; "-": standard output."""
    data = text.encode("utf-8", "replace")
    if path == "-":
        sys.stdout.buffer.write(data)
        return
    with replacing(path) as temporary, open(temporary, "wb") as file:
        file.write(gzip.compress(data, mtime=0) if path.endswith(".gz") else data)


def _short(number: float) -> str:
    """Three digits at least, and no trailing zeros after the point: 5.43, 886.2, 12."""
    return f"{number:.{2 if number < 100 else 1}f}".rstrip("0").rstrip(".")


def format_bytes(count: int) -> str:
    """ "5.43 GiB", "886.2 MiB", "12 KiB", "17 B", as the program prints sizes."""
    for unit, scale in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if abs(count) >= scale:
            return f"{_short(count / scale)} {unit}"
    return f"{count} B"


def format_time(ns: int) -> str:
    """ "12.3 ms", "4.56 us", "7 ns", as the program prints times."""
    for unit, scale in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if abs(ns) >= scale:
            return f"{_short(ns / scale)} {unit}"
    return f"{ns} ns"


def run_main(work: Callable[[], object]) -> int:
    """Runs `work()`; a BadInput, or too little memory, becomes a message and exit code 2, as in the
    program."""
    try:
        work()
        sys.stdout.flush()
    except BadInput as error:
        print(f"superneurons: {error}", file=sys.stderr)
        return 2
    except MemoryError:
        print("superneurons: this machine has not enough memory for that", file=sys.stderr)
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
