"""`with superneurons.capture("t.jsonl.gz", model=model, optimizer=optimizer):` in a program."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable
from types import TracebackType
from typing import Any

from superneurons import session
from superneurons.convert import convert, keep
from superneurons.files import BadInput, check_writable
from superneurons.options import Options, say
from superneurons.program import find_library
from superneurons.report import Report


class Capture:
    """Captures training steps that run inside the context and writes a trace when it is left.

    `path`: the trace. `model`: whose names the tensors get (all modules that run, if none is
    given). `optimizer`: one or several whose steps count as training steps (all, if none is given;
    or `superneurons.training_step()`). `warmup` training steps are left alone first, `steps` are
    watched and give the trace, `untouched` more give its time. `strip_recompute`: without what
    activation checkpointing computes again. `offload`: saved tensors live on the host meanwhile.
    `compiled`: functions that torch.compile made stay compiled, and are known by their kernels.
    `library`: the CUPTI collector, found by itself beside the `superneurons` program.
    `device`: "cuda" or "cpu" ("": CUDA where the program uses it). BadInput at once where `path`
    cannot be written.

    Leaving the context raises nothing of its own, so that a training program goes on whatever
    becomes of the trace: `report` then says what was captured, or `problem`, as does a line on
    standard error, why there is no trace, and where the raw capture is.
    """

    def __init__(
        self,
        path: str,
        *,
        model: Any = None,
        optimizer: Any = None,
        warmup: int = 3,
        steps: int = 3,
        untouched: int = 5,
        name: str = "",
        batch: int = 0,
        strip_recompute: bool = False,
        offload: bool = False,
        compiled: bool = False,
        library: str | None = None,
        device: str = "",
    ) -> None:
        if warmup < 0 or steps < 1 or untouched < 0:
            raise ValueError("warmup and untouched are at least 0, steps at least 1")
        if device not in ("", "cuda", "cpu"):
            raise ValueError(f'device is "{device}" (would be "cuda" or "cpu")')
        if compiled and (offload or strip_recompute):
            raise ValueError("compiled goes with neither offload nor strip_recompute")
        check_writable(path)
        self.path = path
        self.report: Report | None = None
        self.problem = ""  # why there is no trace
        self._strip, self._batch = strip_recompute, batch
        self._model = model
        several = isinstance(optimizer, Iterable)
        self._optimizers = optimizer if several else [] if optimizer is None else [optimizer]
        self._options = Options(
            warmup=warmup, steps=steps, untouched=untouched, offload=offload, compiled=compiled, name=name,
            device=device, collector=(find_library() or "") if library is None else library,
        )  # fmt: skip
        self._session: session.Session | None = None

    def __enter__(self) -> Capture:
        if session.current is not None:
            raise RuntimeError("a capture is under way in this process already")
        self._options.folder = tempfile.mkdtemp(prefix="superneurons-")
        self._session = session.Session(self._options, self._model, self._optimizers)
        session.current = self._session
        self._session.begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._session is not None
        ended = self._session
        ended.end("the `with` block ended")
        if os.getpid() != ended.process:
            return
        try:
            if ended.raw is None:
                self.problem = f"{self.path}: nothing was captured: {ended.reason}"
            else:
                self.report = convert(
                    ended.raw_path(), self.path, strip_recompute=self._strip, batch=self._batch
                )
        except BadInput as problem:
            self.problem = str(problem)
        except Exception as problem:  # noqa: BLE001
            self.problem = f"{self.path}: no trace ({type(problem).__name__}: {problem})"
        folder = self._options.folder
        if self.problem:
            say(self.problem)
        if ended.raw is not None and self.report is None:
            say(keep(folder, self.path, "python -m superneurons.convert"))
        else:
            shutil.rmtree(folder, ignore_errors=True)
