"""What the tests share: the repository and the program (skipped where it is not built)."""

import shlex
import sys
from pathlib import Path

import pytest

from superneurons.program import find_program, run

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def root():
    return ROOT


@pytest.fixture
def program():
    """Runs the program: program("show", file) gives what it prints."""
    if find_program() is None:
        pytest.skip("superneurons is not built (build/superneurons, or name it in $SUPERNEURONS)")
    return run


@pytest.fixture
def canonical(program, tmp_path):
    """The canonical text of a trace file by the program: what it sends to exec: policies."""

    def text(file):
        sent = tmp_path / "sent"
        command = f"cat > {shlex.quote(str(sent))}; exit 1"
        with pytest.raises(RuntimeError, match="exit status 1"):
            program("plan", file, "--policy", f"exec:{command}")
        return b"".join(line + b"\n" for line in sent.read_bytes().split(b"\n")[:-3])

    return text


@pytest.fixture
def python():
    return shlex.quote(sys.executable)
