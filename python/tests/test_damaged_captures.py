"""Raw captures that were damaged anywhere, in any way, give an error with its place, or a trace that
is lawful: never a traceback."""

import gzip
import json
import os
import random
from pathlib import Path

import pytest
from superneurons.convert import convert, convert_all
from superneurons.files import BadInput
from superneurons.traces import read_trace

FIXTURES = Path(__file__).parent / "fixtures"
CAPTURES = sorted(each.name for each in FIXTURES.glob("capture.*.jsonl.gz"))
ROUNDS = int(os.environ.get("SUPERNEURONS_FUZZ_ROUNDS", "40"))  # each of a second or so
VALUES = [None, True, -1, 0, 1, 7, 1 << 31, 1 << 62, 1 << 70, 1.5, "", "x", "1", "\ud800", [], [1],
          [[]], [[0, 0, 4]], [[0, -1, 4]], [None], {}, {"a": 1}, float("inf")]  # fmt: skip


def cut(lines, draw):
    text = b"".join(lines)
    return text[: draw.randrange(len(text))]


def flip(lines, draw):
    text = bytearray(b"".join(lines))
    for _ in range(draw.choice([1, 1, 4, 30])):
        text[draw.randrange(len(text))] = draw.choice(
            [draw.randrange(256), 0x30 + draw.randrange(10)]
        )
    return bytes(text)


def drop(lines, draw):
    kept = list(lines)
    for _ in range(draw.choice([1, 1, 5])):
        at = draw.randrange(len(kept))
        del kept[at : at + draw.choice([1, 1, 3, 50])]
        kept = kept or [b"\n"]
    return b"".join(kept)


def repeat(lines, draw):
    kept = list(lines)
    kept.insert(draw.randrange(len(kept) + 1), draw.choice(lines))
    return b"".join(kept)


def exchange(lines, draw):
    kept = list(lines)
    a, b = draw.randrange(len(kept)), draw.randrange(len(kept))
    kept[a], kept[b] = kept[b], kept[a]
    return b"".join(kept)


def places(value, found):
    """Every (container, key) in a record."""
    for key in value if isinstance(value, dict) else range(len(value)):
        found.append((value, key))
        if isinstance(value[key], (dict, list)):
            places(value[key], found)
    return found


def replace(lines, draw):
    """A value by one of another kind, so that the line stays JSON."""
    kept = list(lines)
    for _ in range(draw.choice([1, 1, 3])):
        at = 0 if draw.random() < 0.1 else draw.randrange(len(kept))
        record = json.loads(kept[at])
        container, key = draw.choice(places(record, []))
        if draw.random() < 0.2:
            del container[key]
        else:
            container[key] = draw.choice(VALUES)
        kept[at] = json.dumps(record).encode() + b"\n"
    return b"".join(kept)


DAMAGES = [cut, flip, drop, repeat, exchange, replace, replace]


def activities(lines):
    """A log of the device's work that fits the calls of a capture."""
    now, step = 0, -1
    for line in lines:
        record = json.loads(line)
        if record["r"] == "step":
            step = record["step"]
        elif record["r"] == "call" and step >= 0:
            now += 50
            row = {"tag": (step + 1) << 32 | record["c"], "name": "k", "start": now, "end": now + 9}
            yield json.dumps(row).encode() + b"\n"
    yield b'{"r":"end","activities":1,"dropped":0}\n'


def lawful_or_said(file, target):
    """Whether there is a trace."""
    try:
        report = convert(str(file), str(target))
    except BadInput as error:
        assert error.message and str(file.parent) in error.file
        return False
    read_trace(str(target))
    assert "\n".join(report.lines())
    return True


@pytest.mark.parametrize("name", CAPTURES)
def test_a_damaged_capture_gives_an_error_or_a_lawful_trace(tmp_path, name):
    lines = gzip.decompress((FIXTURES / name).read_bytes()).splitlines(keepends=True)
    draw = random.Random(name)
    file, count = tmp_path / "capture.1.jsonl", 0
    for _ in range(ROUNDS):
        file.write_bytes(draw.choice(DAMAGES)(lines, draw))
        count += lawful_or_said(file, tmp_path / "t.jsonl")
    assert 0 < count < ROUNDS  # else the damage is too little, or too much, to tell anything


def test_a_damaged_log_of_the_device_gives_an_error_or_a_lawful_trace(tmp_path):
    lines = gzip.decompress((FIXTURES / "capture.mlp.jsonl.gz").read_bytes()).splitlines(
        keepends=True
    )
    header = {**json.loads(lines[0]), "device": "cuda", "activities": True}
    capture = [json.dumps(header).encode() + b"\n", *lines[1:]]
    (tmp_path / "capture.1.jsonl").write_bytes(b"".join(capture))
    log, draw, count = list(activities(lines)), random.Random(1), 0
    for _ in range(2 * ROUNDS):
        (tmp_path / "activities.1.jsonl").write_bytes(draw.choice(DAMAGES)(log, draw))
        count += lawful_or_said(tmp_path / "capture.1.jsonl", tmp_path / "t.jsonl")
    assert 0 < count < 2 * ROUNDS


def test_damaged_packed_files_are_read_as_far_as_they_go(tmp_path):
    packed = (FIXTURES / "capture.mlp.jsonl.gz").read_bytes()
    draw = random.Random(2)
    file = tmp_path / "capture.1.jsonl.gz"
    for _ in range(ROUNDS):
        text = bytearray(packed[: draw.choice([len(packed), draw.randrange(len(packed))])])
        for _ in range(draw.choice([0, 1, 3])):
            text[draw.randrange(len(text))] ^= 1 << draw.randrange(8)
        file.write_bytes(bytes(text))
        lawful_or_said(file, tmp_path / "t.jsonl")


def test_one_damaged_rank_does_not_take_the_others_along(tmp_path):
    whole = gzip.decompress((FIXTURES / "capture.mlp.jsonl.gz").read_bytes())
    (tmp_path / "capture.1.jsonl").write_bytes(whole)
    (tmp_path / "capture.2.jsonl").write_bytes(whole[:40])
    problems = []
    reports = convert_all(str(tmp_path), str(tmp_path / "t.jsonl"), problems=problems)
    assert [Path(each.path).name for each in reports] == ["t.1.jsonl"]
    assert [Path(each.file).name for each in problems] == ["capture.2.jsonl"]
    with pytest.raises(BadInput):
        convert_all(str(tmp_path), str(tmp_path / "t.jsonl"))


def test_what_is_no_capture_is_not_called_empty(tmp_path):
    raw = tmp_path / "text.jsonl"
    for text, wrong in (("hello\n", "is no JSON"), ("", "is empty")):
        raw.write_text(text)
        with pytest.raises(BadInput, match=f"text.jsonl:1: {wrong}"):
            convert(str(raw), str(tmp_path / "t.jsonl"))
