"""Calls the `superneurons` program from Python."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path


def find_program() -> str | None:
    """$SUPERNEURONS, else build/superneurons of the source tree, else one on the PATH, or None."""
    named = os.environ.get("SUPERNEURONS")
    if named:
        return named
    built = Path(__file__).resolve().parents[2] / "build" / "superneurons"
    return str(built) if built.exists() else shutil.which("superneurons")


def run(*arguments: str | os.PathLike[str], program: str | None = None) -> str:
    """What the program prints; RuntimeError with its message where it fails or is not found."""
    program = program or find_program()
    if program is None:
        raise RuntimeError("no `superneurons` program: build it, or name it in $SUPERNEURONS")
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(
            done.stderr.strip() or f"superneurons ended with exit code {done.returncode}"
        )
    return done.stdout


def find_library() -> str | None:
    """The CUPTI collector: beside the program, else in the lib folder of where it was installed."""
    program = find_program()
    if program is None:
        return None
    folder = Path(program).resolve().parent
    for place in (".", "../lib", "../lib64", "../lib/x86_64-linux-gnu"):
        library = folder / place / "libsuperneurons_cupti.so"
        if library.exists():
            return str(library.resolve())
    return None
