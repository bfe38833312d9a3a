"""Traces: read and written as the program does it, to the byte and the hash; bad ones are named."""

import gzip
import json
import random
import re
import struct

import pytest

from superneurons.fields import text_of_number
from superneurons.files import BadInput
from superneurons.traces import (
    Access,
    Carry,
    Choice,
    Op,
    Tensor,
    Trace,
    format_trace,
    parse_trace,
    read_trace,
    trace_hash,
    write_trace,
)


def toy():
    """x is carried in and read by two ops; y leaves before the end."""
    return Trace(
        "toy",
        [Tensor("x", 8, "parameter"), Tensor("y", 4, "activation", freed_before=2)],
        [
            Op("a", "Add", [Choice(ns=5)], reads=[Access(0, 0, 8)], writes=[Access(1, 0, 4)]),
            Op("b", "Add", [Choice()], reads=[Access(1, 2, 2)], writes=[Access(0, 0, 8)]),
        ],
        [Carry(0, 0)],
    )


def odd_numbers(count=2000, seed=7):
    """Doubles of all kinds: any bits, few digits, near the borders of the two notations."""
    draw = random.Random(seed)
    numbers = [
        0.0,
        -0.0,
        1e-4,
        1e-5,
        123456e-9,
        2.0**53,
        2.0**53 + 2,
        1e22,
        1.5e300,
        5e-324,
        0.1,
        1 / 3,
        1e15,
        1e5,
    ]
    while len(numbers) < count:
        value = struct.unpack("<d", struct.pack("<Q", draw.getrandbits(64)))[0]
        few = draw.randrange(1, 10 ** draw.randrange(1, 18)) * 10.0 ** draw.randrange(-30, 25)
        numbers += [
            number
            for number in (value, few, -few)
            if number == number and abs(number) != float("inf")
        ]
    return numbers


@pytest.mark.parametrize(
    "number, text",
    [
        (0.0, "0"),
        (-0.0, "-0.0"),
        (3.0, "3"),
        (0.5, "0.5"),
        (1e-4, "1e-04"),
        (0.001, "0.001"),
        (0.00012, "0.00012"),
        (1.5e-7, "1.5e-07"),
        (1e22, "1e+22"),
        (2.0**53, "9007199254740992"),
        (1.25e300, "1.25e+300"),
        (0.128564869306645, "0.128564869306645"),
        (-0.1, "-0.1"),
        (1234.5, "1234.5"),
    ],
)
def test_numbers_are_the_shortest_text(number, text):
    assert text_of_number(number) == text


def test_numbers_read_back_the_same():
    for number in odd_numbers():
        assert struct.pack("<d", float(json.loads(text_of_number(number)))) == struct.pack(
            "<d", number
        )


def test_recorded_traces_are_written_back_to_the_byte(root):
    files = sorted((root / "traces").glob("*.jsonl.gz"))
    assert files
    for file in files:
        if file.stat().st_size < 300_000:  # the others take long
            assert format_trace(read_trace(str(file))).encode() == gzip.decompress(
                file.read_bytes()
            )


def test_the_examples_of_the_format_document_are_read_and_written_back(root):
    text = (root / "traces" / "FORMAT.md").read_text()
    blocks = [
        block
        for block in re.findall(r"```jsonl\n(.*?)```", text, re.S)
        if '"superneurons-trace"' in block
    ]
    assert len(blocks) >= 2
    for block in blocks:
        assert format_trace(parse_trace(block)) == block


def test_a_trace_survives_a_file_and_does_not_depend_on_its_layout(tmp_path):
    trace = toy()
    write_trace(trace, str(tmp_path / "t.jsonl.gz"))
    assert read_trace(str(tmp_path / "t.jsonl.gz")) == trace
    lines = [json.loads(line) for line in format_trace(trace).splitlines()]
    lines.insert(1, {"r": "of a newer version"})
    shuffled = "".join(
        json.dumps({"new": 1, **dict(reversed(line.items()))}) + " \n\n" for line in lines
    )
    assert trace_hash(parse_trace(shuffled)) == trace_hash(trace)


@pytest.mark.parametrize(
    "once, twice, line",
    [
        ('"name":"x"', '"name":"x","name":"y"', 2),
        ('"r":"end"', '"r":"end","r":"end"', -1),
    ],
)
def test_a_key_that_occurs_twice_is_refused(once, twice, line):
    text = format_trace(toy()).replace(once, twice)
    number = line if line > 0 else text.count("\n")
    with pytest.raises(BadInput, match=f"^file:{number}: the key .* occurs twice"):
        parse_trace(text, "file")


def test_the_program_hashes_and_writes_the_same(root, program, canonical):
    for name in ("alexnet-b128", "resnet50-b64"):
        file = root / "traces" / f"{name}.jsonl.gz"
        trace = read_trace(str(file))
        plan = program("plan", file, "--policy", "keep_all")
        assert json.loads(plan.splitlines()[0])["trace"] == trace_hash(trace)
        assert canonical(file) == format_trace(trace).encode()


def test_the_program_writes_odd_numbers_and_texts_the_same(program, canonical, tmp_path):
    trace = toy()
    trace.origin = 'quote " slash \\ / tab \t bell \x07 del \x7f \u00e9 \u4e2d \U0001f600'
    trace.ops[0].attributes = {f"{i} \u00e9": number for i, number in enumerate(odd_numbers())}
    trace.ops[0].flops = 1.5e9
    file = tmp_path / "odd.jsonl"
    write_trace(trace, str(file))
    assert canonical(file) == file.read_bytes()


def test_the_program_builds_what_is_read_and_written_back(program, tmp_path):
    file = tmp_path / "net.jsonl"
    program("build", "vgg16", "--batch", "2", "-o", file)
    assert format_trace(read_trace(str(file))).encode() == file.read_bytes()


def refused(text, message, name="t.jsonl"):
    with pytest.raises(BadInput) as error:
        parse_trace(text, name)
    assert message in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    "old, new, message",
    [
        ('"bytes":8,', '"bytes":-8,', 't.jsonl:2: tensor 0 "x" has -8 bytes (would be above 0'),
        (
            '"bytes":8,',
            '"bytes":8.5,',
            't.jsonl:2: "bytes" of tensor 0 is 8.5 (would be a whole number',
        ),
        (
            '"bytes":8,',
            '"bytes":9223372036854775808,',
            "is 9223372036854775808 (would be a whole number",
        ),
        ('"bytes":8,', "", 't.jsonl:2: tensor 0 lacks "bytes"'),
        ('"id":1,"name":"y"', '"id":0,"name":"y"', "t.jsonl:3: a second tensor 0 (would be 1)"),
        ('"id":1,"name":"y"', '"id":2,"name":"y"', "t.jsonl:3: tensor 2 comes where 1 is due"),
        ('"name":"y"', '"name":"x"', "has the name of an earlier tensor"),
        (
            '"parameter"',
            '"weights"',
            '"role" of tensor 0 is "weights" (would be one of input parameter',
        ),
        ('"ns":5', '"ns":NaN', "is not JSON"),
        ('"ns":5', '"ns":-5', 't.jsonl:4: op 0 "a" takes -5 ns'),
        ('"ns":5', '"ns":true', '"ns" of'),
        (
            '"reads":[0]',
            '"reads":[7]',
            '"reads" of op 0 holds 7 (would be one of the 2 tensors so far)',
        ),
        ('"reads":[0]', '"reads":[1]', 'reads "y" before it was written'),
        ("[1,2,2]", "[1,3,2]", 'accesses 2 bytes from 3 of "y", which has 4'),
        ('"freed_before":2', '"freed_before":1', "which the program freed before op 1"),
        ('"version":"0.1"', '"version":"2.0"', "t.jsonl:1: version 2.0 is newer"),
        ('"superneurons-trace"', '"superneurons-plan"', "t.jsonl:1: the format is"),
        (
            '"tensors":2',
            '"tensors":3',
            "t.jsonl:7: the end record states 3 tensors, the file has 2",
        ),
        ('{"r":"carry",', '{"k":"carry",', "t.jsonl:6: a record without a kind"),
        ('"choices":[{}]', '"choices":[]', "has no choice"),
        ('"start":0', '"start":5', "t.jsonl:6: carry 0 names tensor 5"),
        ('"start":0', '"start":0,"end":1', "of different sizes"),
    ],
)
def test_a_broken_trace_is_refused_with_its_line(old, new, message):
    text = format_trace(toy())
    assert old in text
    refused(text.replace(old, new, 1), message)


def test_the_program_refuses_the_same_line(program, tmp_path):
    file = tmp_path / "t.jsonl"
    for old, new in [
        ('"bytes":8,', '"bytes":-8,'),
        ("[1,2,2]", "[1,3,2]"),
        ('"id":1,"name":"y"', '"id":2,"name":"y"'),
        ('"reads":[0]', '"reads":[1]'),
        ('"tensors":2', '"tensors":3'),
        ('"start":0', '"start":5'),
    ]:
        text = format_trace(toy()).replace(old, new, 1)
        file.write_text(text)
        with pytest.raises(RuntimeError) as error:
            program("show", file)
        assert str(error.value) == "superneurons: " + refused(text, "", str(file))


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "t.jsonl: is empty"),
        ("{", "t.jsonl:1: is not JSON"),
        ("[]", "t.jsonl:1: is no JSON object"),
        ('{"a":' * 20 + "1" + "}" * 20, "nested too deeply"),
        ("[" * 100_000, "t.jsonl:1: is not JSON"),
        (b"\xff\xfe\n", "t.jsonl:1: is not UTF-8"),
        (b" " * (17 << 20), "t.jsonl:1: is a line of"),
    ],
)
def test_what_is_no_trace_is_refused(text, message):
    refused(text, message)


def test_a_file_cut_short_says_after_what():
    text = format_trace(toy())
    refused(text[: text.index('{"r":"carry"')], 't.jsonl:5: is cut off after op 1 "b"')
    refused(text[:-10], "is cut off after")
    refused(text.replace('"id":0,"name":"a"', '"id":0,"name":"a'), "t.jsonl:4: is not JSON")
    refused(text + text, "t.jsonl:8: something follows the end record")


def test_damaged_gzip_and_missing_files_are_named(tmp_path):
    file = tmp_path / "t.jsonl.gz"
    write_trace(toy(), str(file))
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(BadInput, match="damaged gzip"):
        read_trace(str(file))
    with pytest.raises(BadInput, match="none.jsonl: cannot be read"):
        read_trace(str(tmp_path / "none.jsonl"))


def test_a_trace_that_breaks_a_law_is_not_written(tmp_path):
    trace = toy()
    trace.ops[1].name = "a"
    with pytest.raises(BadInput, match='op 1 "a" has the name of an earlier op'):
        write_trace(trace, str(tmp_path / "t.jsonl"))
    assert not list(tmp_path.iterdir())
