"""Raw captures: what is written while a PyTorch program is watched, line by line, so that a program
that is killed leaves all but its last line. `superneurons.convert` makes a trace of it later.

JSON Lines, one file per process. The first line is the header. In the order in which it happened:

    module    id, root, path, class, weights          a module of the model that started at `root`
    storage   s, bytes, dtype, shape                  a storage seen for the first time, by serial
    state     s, role, name, m                        state that has a name, before the next step
    step      step, allocated                         a traced training step begins
    call      c, kind, phase, m, mb, in, out, ...     an op of it, by its number in the step
    make      s                                       memory that nobody has written yet
    free      s                                       a storage died: after the last call, before the next
    memory    c, workspace                            of the allocator, in a call of the step ended
    step_end  step, ns
    untouched ns, host_ns, allocated, reserved        training steps that nobody watched
    note      text                                    what went wrong
    end       why                                     what ended it early, or ""

Of a compiled program (`compiled` in the header) only:

    segment   address, bytes                          memory that the allocator has from the driver
    held      address, bytes                          what is given out when the watching begins
    allocate  address, bytes, us                      by the allocator; free: taken back
    boundary  clocks                                  the device is idle, between training steps:
                                                      [before, after] of each wait for it, in ns

An access is `[s, offset, length]` in bytes. A call has `in` and `out`, `makes` (storages new with
it), `once` (written by its first run only), `random`, `sync` (the host waits for the device),
`host` (ns of the call itself), `before` (ns and number of calls since the last that were views) and,
of multi-tensor ops, `lists`: the accesses of each list of tensors.
"""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from superneurons.files import LONGEST_LINE, BadInput, header_problem

FORMAT = "superneurons-capture"
VERSION = "0.1"
_HEADER: dict[str, type] = {"device": str, "device_name": str, "torch": str, "name": str, "rank": int,
                            "world": int, "tf32": bool, "activities": bool, "memory": bool, "compiled": bool,
                            "options": dict}  # fmt: skip
_NAMES = {str: "text", int: "whole number", bool: "true or false", dict: "object"}


class RawWriter:
    """Appends records to a file, each with one system call: nothing waits in this process, so that
    a kill loses nothing and a fork()ed child has nothing to write twice."""

    def __init__(self, path: str, header: dict[str, Any]) -> None:
        self.path = path
        self._held = ""
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        self.line({"r": "header", "format": FORMAT, "version": VERSION, **header})

    def line(self, record: dict[str, Any]) -> None:
        self.text(json.dumps(record, separators=(",", ":")))

    def hold(self, text: str) -> None:
        """One record that is JSON already, and says nothing without one that follows: it is
        written with that."""
        self._held += text + "\n"

    def text(self, text: str) -> None:
        """One record that is JSON already."""
        if self._file >= 0:
            text, self._held = self._held + text, ""
            data = memoryview((text + "\n").encode("utf-8", "replace"))
            while data:
                data = data[os.write(self._file, data) :]

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


@dataclass
class RawReader:
    """Reads records in order; `cut` says where a file ends too early."""

    path: str
    header: dict[str, Any] = field(default_factory=dict)
    cut: str = ""  # "" where the file is whole
    line: int = 0

    def records(self) -> Iterator[dict[str, Any]]:
        """All after the header. BadInput for a damaged line, unless it is the last one."""
        ended = False
        self.line, self.cut, self.header = 0, "", {}
        damaged = ""
        for text in self._lines():
            if damaged:
                raise BadInput(damaged, self.path, self.line)
            self.line += 1
            try:
                record = json.loads(text)
            except ValueError:
                damaged = "is no JSON (would be one record per line)"
                continue
            except RecursionError:
                raise BadInput("is nested too deeply", self.path, self.line) from None
            if not isinstance(record, dict):
                raise BadInput("is no JSON object", self.path, self.line)
            if not self.header:
                problem = _header_fault(record)
                if problem:
                    raise BadInput(problem, self.path, 1)
                self.header = record
                continue
            ended = ended or record.get("r") == "end"
            yield record
        if not self.header:
            raise BadInput(damaged or "is empty (would start with a header)", self.path, 1)
        if damaged or not ended:
            self.cut = f"ends early, in line {self.line}" if damaged else "has no end record"

    def _lines(self) -> Iterator[bytes]:
        try:
            for text in lines_of_file(self.path):
                if text.strip():
                    yield text
        except CutShort as error:
            if not self.header:
                raise BadInput(str(error), self.path) from None
            self.cut = str(error)


def counts(value: Any) -> bool:
    """Whether it is a whole number from 0 on, as sizes and times are."""
    return type(value) is int and 0 <= value < 1 << 62


def integer(record: dict[str, Any], key: str, reader: RawReader, least: int = 0) -> int:
    value = record.get(key)
    if type(value) is not int or not least <= value < 1 << 62:
        raise BadInput(
            f'"{key}" is {str(value)[:40]} (would be a whole number from {least} on)',
            reader.path, reader.line,
        )  # fmt: skip
    return value


def text(record: dict[str, Any], key: str, reader: RawReader) -> str:
    value = record.get(key)
    if not isinstance(value, str):
        raise BadInput(f'"{key}" is no text', reader.path, reader.line)
    return value


class CutShort(Exception):
    """A packed file cannot be read any further, and why."""


def lines_of_file(path: str) -> Iterator[bytes]:
    """One by one, from a file that may be packed and of any size. CutShort where packed data is
    damaged, BadInput where the file cannot be read at all or a line is too long."""
    number = 0
    try:
        with gzip.open(path) if path.endswith(".gz") else open(path, "rb") as file:
            while text := file.readline(LONGEST_LINE + 1):
                number += 1
                if len(text) > LONGEST_LINE:
                    raise BadInput("is a line that is too long", path, number)
                yield text
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise CutShort(f"is damaged gzip ({error})") from None
    except OSError as error:
        raise BadInput(f"cannot be read ({error.strerror})", path) from None


def _header_fault(header: dict[str, Any]) -> str:
    """What is wrong with a header, or ""; what else stands in it is no concern of ours."""
    for key, kind in _HEADER.items():
        if type(header.get(key, kind())) is not kind:
            return f'"{key}" of the header is no {_NAMES[kind]}'
    return header_problem(header, FORMAT)
