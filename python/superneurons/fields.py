"""The fields of records, used both ways: JSON to record with checks, record to canonical JSON.

A record type has a tuple of `Field`s in the order in which they are written; a `Form` says what the
value of a field is. Canonical text has no spaces, leaves out fields that have their plain value,
and writes numbers as the C++ program does, so that both give a trace the same hash.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from superneurons.files import (
    FORMAT_VERSION,
    BadInput,
    header_problem,
    lines_of,
    not_json,
    parse_json,
)

_NEVER = object()  # as the plain value of a field: it is always written


class Wrong(ValueError):
    """A value that is not of its form."""

    def __init__(self, value: Any, right: str) -> None:
        super().__init__(f"{describe(value)} (would be {right})")
        self.value = value


def describe(value: Any) -> str:
    """For messages: -5, "abc", an array."""
    if isinstance(value, (list, dict)):
        return "an array" if isinstance(value, list) else "an object"
    text = json.dumps(value)
    return text if len(text) <= 64 else text[:60] + "..."


def text_of_number(number: float) -> str:
    """The shortest text that reads back as the same double; whole numbers below 2^53 as such."""
    if not math.isfinite(number):
        return "null"
    if number == 0:
        return "-0.0" if math.copysign(1, number) < 0 else "0"
    if abs(number) < 2**53 and number == int(number):
        return str(int(number))
    mantissa, exponent = _digits(abs(number))
    sign = "-" if number < 0 else ""
    # Fixed or scientific, whichever is shorter, and fixed of equals: std::to_chars.
    lowest, highest = -(len(mantissa) + 3), 5
    if len(mantissa) == 1:
        lowest, highest = lowest + 1, highest - 1
    if not lowest <= exponent <= highest:
        point = "." + mantissa[1:] if len(mantissa) > 1 else ""
        return f"{sign}{mantissa[0]}{point}e{exponent + len(mantissa) - 1:+03d}"
    if exponent >= 0:
        return str(int(number))
    digits = mantissa.rjust(1 - exponent, "0")
    return f"{sign}{digits[:exponent]}.{digits[exponent:]}"


def _digits(number: float) -> tuple[str, int]:
    """(digits, exponent): number = digits * 10^exponent, with the fewest digits; number > 0."""
    head, _, power = repr(number).partition("e")
    whole, _, fraction = head.partition(".")
    digits, exponent = whole + fraction, int(power or 0) - len(fraction)
    short = digits.rstrip("0")
    return short.lstrip("0"), exponent + len(digits) - len(short)


def text_of(value: str) -> str:
    """A JSON string, not escaped beyond need."""
    return json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True)
class Form:
    """What a value may be: read(value, context) raises Wrong; write(value, context) gives JSON."""

    read: Callable[[Any, Any], Any]
    write: Callable[[Any, Any], str]


@dataclass(frozen=True)
class Field:
    """A key of a record. Without `plain` it is required; else left out where it has that value."""

    key: str
    form: Form
    plain: Any = _NEVER
    name: str = ""  # of the attribute; "": the key
    always: bool = False  # written even where it is plain

    @property
    def attribute(self) -> str:
        return self.name or self.key

    @property
    def required(self) -> bool:
        return self.plain is _NEVER


def _read_text(value: Any, context: Any) -> str:
    if not isinstance(value, str):
        raise Wrong(value, "a text in quotes")
    try:
        value.isascii() or value.encode("utf-8")
    except UnicodeEncodeError:
        raise Wrong(value, "UTF-8") from None
    return value


def _read_flag(value: Any, context: Any) -> bool:
    if not isinstance(value, bool):
        raise Wrong(value, "true or false")
    return value


def _read_real(value: Any, context: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Wrong(value, "a number")
    try:
        return float(value)
    except OverflowError:
        raise Wrong(value, "a number below 1.8e308") from None


def whole(low: int, high: int) -> Form:
    """Whole numbers from low to high."""

    def read(value: Any, context: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise Wrong(value, f"a whole number from {low} to {high}")
        return value

    return Form(read, lambda value, context: str(value))


def one_of(names: Sequence[str]) -> Form:
    """One of some words."""

    def read(value: Any, context: Any) -> str:
        if not isinstance(value, str) or value not in names:
            raise Wrong(value, "one of " + " ".join(names))
        return value

    return Form(read, lambda value, context: text_of(value))


def list_of(form: Form) -> Form:
    """An array."""

    def read(value: Any, context: Any) -> list[Any]:
        if not isinstance(value, list):
            raise Wrong(value, "an array")
        return [form.read(element, context) for element in value]

    return Form(
        read, lambda value, context: "[" + ",".join(form.write(v, context) for v in value) + "]"
    )


def map_of(form: Form) -> Form:
    """An object from any text; written in the order of its keys."""

    def read(value: Any, context: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise Wrong(value, "an object")
        return {key: form.read(member, context) for key, member in value.items()}

    def write(value: dict[str, Any], context: Any) -> str:
        keys = sorted(value, key=lambda key: key.encode("utf-8", "replace"))
        return (
            "{"
            + ",".join(f"{text_of(key)}:{form.write(value[key], context)}" for key in keys)
            + "}"
        )

    return Form(read, write)


def pair_of(first: Form, second: Form, right: str) -> Form:
    """Two values in an array, a tuple in Python; `right` describes them."""

    def read(value: Any, context: Any) -> tuple[Any, Any]:
        if not isinstance(value, list) or len(value) != 2:
            raise Wrong(value, right)
        return first.read(value[0], context), second.read(value[1], context)

    def write(value: tuple[Any, Any], context: Any) -> str:
        return f"[{first.write(value[0], context)},{second.write(value[1], context)}]"

    return Form(read, write)


def record_of(type_: Callable[..., Any], fields: Sequence[Field]) -> Form:
    """An object with fields of its own."""
    return Form(
        lambda value, context: type_(**read_fields(value, fields, context)),
        lambda value, context: "{" + ",".join(written(value, fields, context)) + "}",
    )


TEXT = Form(_read_text, lambda value, context: text_of(value))
FLAG = Form(_read_flag, lambda value, context: "true" if value else "false")
REAL = Form(_read_real, lambda value, context: text_of_number(value))
INT64 = whole(-(1 << 63), (1 << 63) - 1)
INT32 = whole(-(1 << 31), (1 << 31) - 1)
INDEX = whole(0, (1 << 32) - 1)


def read_fields(
    value: Any, fields: Sequence[Field], context: Any = None, what: str = "the record"
) -> dict[str, Any]:
    """The attributes present; Wrong or BadInput (without place) names the first bad one."""
    if not isinstance(value, dict):
        raise Wrong(value, "an object")
    attributes = {}
    for field in fields:
        if field.key not in value:
            if field.required:
                raise BadInput(f'{what} lacks "{field.key}"')
            continue
        try:
            attributes[field.attribute] = field.form.read(value[field.key], context)
        except Wrong as error:
            verb = "is" if error.value is value[field.key] else "holds"
            raise BadInput(f'"{field.key}" of {what} {verb} {error}') from None
    return attributes


def written(record: Any, fields: Sequence[Field], context: Any = None) -> list[str]:
    """ "key":value of each field that is not plain, in order."""
    parts = []
    for field in fields:
        value = getattr(record, field.attribute)
        if field.required or field.always or value != field.plain:
            parts.append(f'"{field.key}":{field.form.write(value, context)}')
    return parts


def header_line(format: str, record: Any, fields: Sequence[Field], *more: str) -> str:
    """The first line of a trace or plan."""
    parts = ['"r":"header"', f'"format":"{format}"', f'"version":"{FORMAT_VERSION}"']
    return "{" + ",".join([*parts, *written(record, fields), *more]) + "}\n"


class RecordReader:
    """What readers of JSON Lines share: the header, errors with their place, files cut short.

    A subclass has header(record), record(record, kind) for each line after it, and progress(), the
    last thing that was read.
    """

    format = ""

    def header(self, record: dict[str, Any]) -> None:
        raise NotImplementedError

    def record(self, record: dict[str, Any], kind: str) -> None:
        raise NotImplementedError

    def progress(self) -> str:
        raise NotImplementedError

    def read(self, data: bytes, name: str) -> None:
        """Reads all lines; BadInput with file and line for what breaks the format."""
        self.line = last = 0
        unfinished, ended = "", False
        header = None
        for self.line, text in lines_of(data, name):
            if unfinished:
                raise BadInput(f"{unfinished} (would be one JSON object per line)", name, last)
            try:
                value = parse_json(text)
            except BadInput as error:
                raise BadInput(error.message, name, self.line) from None
            except ValueError as error:
                if header is None:
                    raise BadInput(not_json(error, data, self.format), name, self.line) from None
                unfinished = f"is not JSON: {error}"  # unless nothing follows: then it is cut off
                last = self.line
                continue
            try:
                if ended:
                    raise BadInput("something follows the end record (would be the last line)")
                if header is None:
                    header = value
                    problem = header_problem(value, self.format)
                    if problem:
                        raise BadInput(problem)
                    self.header(value)
                else:
                    ended = self._record(value)
            except BadInput as error:
                raise BadInput(error.message, name, self.line) from None
        if header is None:
            raise BadInput("is empty (would start with a header)", name)
        if not ended:
            raise BadInput(
                f"is cut off after {self.progress()} (would end with an end record)",
                name,
                self.line,
            )

    def _record(self, value: Any) -> bool:
        if not isinstance(value, dict):
            raise BadInput(f"is {describe(value)} (would be an object)")
        kind = value.get("r")
        kind = kind if isinstance(kind, str) else ""
        if kind == "header":
            raise BadInput("a second header (would be the first line only)")
        self.record(value, kind)
        return kind == "end"


def compare_count(end: dict[str, Any], key: str, found: int) -> None:
    """BadInput if the end record states another count."""
    stated = read_fields(end, [Field(key, INT64)], what="the end record")[key]
    if stated != found:
        raise BadInput(f"the end record states {stated} {key}, the file has {found}")
