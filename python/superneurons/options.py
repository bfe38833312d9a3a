"""What is asked of a capture, the PyTorch that it needs, and its one voice."""

from __future__ import annotations

import contextlib
import re
import sys
from dataclasses import dataclass


@dataclass
class Options:
    """What to capture, and where to write it."""

    folder: str = "."
    warmup: int = 3  # training steps left alone first
    steps: int = 3  # watched
    untouched: int = 5  # timed
    stop_after: bool = False  # ends the program then
    offload: bool = False  # saved tensors live on the host
    compiled: bool = False  # functions that torch.compile made, by their kernels
    collector: str = ""  # the CUPTI library; "": no times of kernels
    name: str = ""
    device: str = ""  # "cuda" or "cpu"; "": CUDA if the program uses it


# With 2.1.2 a captured program crashes in PyTorch, when weak references to storages are let go.
OLDEST_TORCH = (2, 2)


def too_old(version: str) -> str:
    """"" or why this PyTorch cannot be captured. A version of another form is not judged."""
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None or tuple(map(int, found.groups())) >= OLDEST_TORCH:
        return ""
    return f"needs PyTorch {'.'.join(map(str, OLDEST_TORCH))} or later, this is {version}"


def say(text: str) -> None:
    """One line for the user, wherever standard error is."""
    with contextlib.suppress(Exception):
        print(f"superneurons: {text}", file=sys.stderr, flush=True)
