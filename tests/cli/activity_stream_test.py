"""Activity logs of any size are converted in bounded memory (bench/activity_stream.py)."""

import importlib.util

from conftest import PROGRAM, ROOT

spec = importlib.util.spec_from_file_location("stream", ROOT / "bench" / "activity_stream.py")
stream = importlib.util.module_from_spec(spec)
spec.loader.exec_module(stream)


def test_a_log_is_converted_in_bounded_memory(tmp_path):
    # bench/activity_stream.py does it with 2 GB in 1 GB; here 100 MB take half of what they take
    # where everything is kept.
    kernels, steps = stream.write_log(tmp_path / "log", 100e6)
    code, said, _, memory = stream.convert(tmp_path / "log", tmp_path / "t.jsonl", PROGRAM)
    assert code == 0, said
    assert memory < 512 << 20
    assert f"a pattern of 2000 kernels, seen {steps} times" in said
    assert (tmp_path / "t.jsonl").read_text().count('"r":"op"') == stream.KERNELS
    assert kernels > 300_000
