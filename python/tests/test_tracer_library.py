"""libsuperneurons_cupti: what it exports, and that it never harms the program it is loaded into."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

from superneurons.program import find_program

NAMES = {
    "InitializeInjection",
    "InitializeInjectionNvtx",
    "InitializeInjectionNvtx2",
    "superneurons_tag_pop",
    "superneurons_tag_push",
    "superneurons_trace_start",
    "superneurons_trace_start_to",
    "superneurons_trace_stop",
}


@pytest.fixture
def library():
    program = find_program()
    found = Path(program).resolve().parent / "libsuperneurons_cupti.so" if program else None
    if found is None or not found.exists():
        pytest.skip("libsuperneurons_cupti.so is not built (it needs CUDA and CUPTI)")
    return found


def test_only_its_c_functions_are_exported(library):
    if shutil.which("nm") is None:
        pytest.skip("nm is not installed")
    symbols = subprocess.run(
        ["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True
    ).stdout
    assert {line.split()[-1] for line in symbols.splitlines()} == NAMES


def test_an_error_is_a_return_value(library, tmp_path):
    try:
        loaded = ctypes.CDLL(str(library))
    except OSError as error:
        pytest.skip(f"it cannot be loaded here: {error}")
    path = str(tmp_path / "none" / "log").encode()
    assert loaded.superneurons_trace_stop(path) != 0  # nothing was being recorded
    loaded.superneurons_tag_push(ctypes.c_uint64(1))
    loaded.superneurons_tag_pop()
    message = ctypes.create_string_buffer(512)
    if loaded.superneurons_trace_start(message, ctypes.c_size_t(512)) == 0:
        assert loaded.superneurons_trace_start(message, ctypes.c_size_t(512)) == 1
        assert b"already" in message.value
        assert loaded.superneurons_trace_stop(path) != 0  # there is no such folder
    else:
        assert message.value
