"""torch.compile during a capture: what it made runs as it was written, op by op, since of a compiled
function no op can be seen. Afterwards it is compiled as always."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch

_OF_HOOKS = r"Using `torch.compile\(module\)` when there are global hooks"


class Eager:
    """From open() to close(); `on_use` is called once, when something is compiled."""

    def __init__(self, on_use: Callable[[], None]) -> None:
        self._on_use = on_use
        self._stance: Any = None
        self._original: Any = None
        self._wrapper: Any = None

    def open(self) -> None:
        if not hasattr(torch, "compile"):
            return
        self._original = original = torch.compile

        @functools.wraps(original)
        def compile(*args: Any, **kwargs: Any) -> Any:
            if self._original is not None:
                self._force()
            return original(*args, **kwargs)

        self._wrapper = compile
        torch.compile = compile
        if "torch._dynamo.eval_frame" in sys.modules and _used():
            self._force()

    def _force(self) -> None:
        if self._stance is not None:
            return
        set_stance = getattr(torch.compiler, "set_stance", None)
        if set_stance is None:  # before PyTorch 2.6: for good
            os.environ["TORCHDYNAMO_DISABLE"] = "1"
            self._stance = contextlib.nullcontext()
        else:
            self._stance = set_stance("force_eager")
            self._stance.__enter__()
            warnings.filterwarnings("ignore", message=_OF_HOOKS)  # they are ours
        self._on_use()

    def close(self) -> None:
        stance, self._stance = self._stance, None
        if stance is not None:
            with contextlib.suppress(RuntimeError):  # inside of a function that is compiled
                stance.__exit__(None, None, None)
            filters: Any = warnings.filters
            filters[:] = [each for each in filters if getattr(each[1], "pattern", "") != _OF_HOOKS]
        if self._original is not None:
            if torch.compile is self._wrapper:
                torch.compile = self._original
            self._original = None


def _used() -> bool:
    """Whether something was to be compiled before: other parts of PyTorch import the compiler too."""
    frames = sys.modules["torch._dynamo.eval_frame"]
    backends = getattr(frames, "cached_backends", None)
    return any(map(callable, backends.values())) if isinstance(backends, dict) else True
