"""One capture of a PyTorch program as it runs: when it starts and stops, what it leaves behind.

Training steps are counted by the steps of the optimizers. The first `warmup` are left alone, the
next `steps` are watched, `untouched` more are timed from their ends alone, and then nothing of
this is left in the program.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

import torch

from superneurons.options import Options, say, too_old

if too_old(torch.__version__):  # said before something that it lacks is missed
    raise ImportError(too_old(torch.__version__))

from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from superneurons.collector import NAME, Collector, Tags
from superneurons.dispatch import Recorder
from superneurons.eager import Eager
from superneurons.layers import Layers
from superneurons.memory_history import MemoryHistory, workspaces
from superneurons.raw import RawWriter
from superneurons.rounds import Rounds
from superneurons.states import named_states
from superneurons.untouched import Untouched

current: Session | None = None  # of this process: PyTorch's hooks are of the process too


class Session:
    """Idle → warm-up → watched → timed → over. `end()` may come at any time."""

    def __init__(
        self, options: Options, model: torch.nn.Module | None = None, optimizers: Any = ()
    ) -> None:
        self.options = options
        self.state = "warmup"
        self.reason = ""  # why nothing, or less than asked for, was captured
        self.ended = 0  # training steps
        self.raw: RawWriter | None = None
        self.process = os.getpid()
        self._model = model
        self._optimizers = [weakref.ref(each) for each in optimizers]  # in the order of their steps
        self._only = bool(self._optimizers)
        self._rounds = Rounds()
        self._marked = False
        self._thread = 0
        self._layers: Layers | None = None
        self._recorder: Recorder | None = None
        self._memory: MemoryHistory | None = None
        self._collector: Collector | None = None
        self._compiled: Any = None
        self._notes: list[str] = []  # before there is a file to write them to
        self._offload: Any = None
        self._untouched = Untouched()
        self._watched = 0  # training steps that were watched to their end
        self._began = 0
        self.on_step: Callable[[int], None] = lambda count: None  # of warm-up that ended
        self._eager = Eager(lambda: self._note(
            "torch.compile was off until the capture was over: the program as written was captured"
        ))  # fmt: skip
        self._handles = [
            register_optimizer_step_pre_hook(self._guarded(self._before_step)),
            register_optimizer_step_post_hook(self._guarded(self._after_step)),
        ]
        os.register_at_fork(after_in_child=partial(_forked, weakref.ref(self)))
        if not options.compiled:
            self._eager.open()
        if options.offload:
            from superneurons.offload import OffloadSaved

            self._offload = OffloadSaved(lambda: self._recorder)
            self._offload.open()

    # Hooks. None lets an error out.

    def _guarded(self, hook: Callable[[Any], None]) -> Callable[..., None]:
        def guarded(optimizer: Any, *_: Any) -> None:
            if self.state == "over":
                return
            try:
                hook(optimizer)
            except Exception as error:  # noqa: BLE001
                self.fail(error)

        return guarded

    def forked(self) -> None:
        """In a child process: everything here belongs to the parent."""
        self.state = "over"
        with contextlib.suppress(Exception):
            self._eager.close()
        if self._recorder is not None:
            self._recorder.active = False
        if self.raw is not None:
            self.raw.close()

    def _before_step(self, optimizer: Any) -> None:
        if self._layers is not None:
            self._layers.in_update = True

    def _after_step(self, optimizer: Any) -> None:
        if self._layers is not None:
            self._layers.in_update = False
        if not any(known() is optimizer for known in self._optimizers):
            if self._only:
                return
            self._optimizers.append(weakref.ref(optimizer))
        if self._rounds.stepped(optimizer) and not self._marked:
            self._boundary()

    def mark(self) -> None:
        """The program says itself where a training step ends; then optimizers no longer do."""
        if self.state == "over" or os.getpid() != self.process:
            return
        if not self._marked and self.state == "warmup":
            self.ended = 0  # what optimizers said may be other steps
        self._marked = True
        try:
            self._boundary()
        except Exception as error:  # noqa: BLE001
            self.fail(error)

    def begin(self) -> None:
        """The program is between two training steps now (capture as a context)."""
        if self.options.warmup == 0:
            self._start()

    def _boundary(self) -> None:
        self.ended += 1
        if self.state == "warmup":
            self.on_step(self.ended)
            if self.ended >= self.options.warmup:
                self._start()
        elif self.state == "watched":
            self._end_watched_step()
        elif self.state == "timed":
            self._untouched.note()
            if self._untouched.count >= self.options.untouched:
                self.end("")
                if self.options.stop_after:
                    say(f"the program ends here, after {self.ended} training steps (--stop-after)")
                    raise SystemExit(0)

    # The watched training steps.

    def _start(self) -> None:
        if torch._C._autograd._profiler_enabled():
            return self.give_up("torch.profiler is active, and only one of us can see the device")
        cuda = torch.cuda.is_available()
        if self.options.device == "cuda" and not cuda:
            return self.give_up("this PyTorch sees no CUDA device (--device cuda)")
        device = self.options.device or ("cuda" if cuda and torch.cuda.is_initialized() else "cpu")
        self.device = device
        if self.options.compiled:
            return self._start_compiled()
        if device == "cuda":
            problem = self._start_collector()
            if problem:
                return self.give_up(problem)
            torch.cuda.synchronize()
            self._memory = MemoryHistory(torch)
            self._memory.open()
        self.raw = RawWriter(self.raw_path(), self._header())
        for text in self._notes:
            self._note(text)
        if self._memory is not None and self._memory.closed_because:
            self._note(f"workspaces are not known: {self._memory.closed_because}")
        self._layers = Layers(self._announce)
        if self._model is not None:
            self._layers.add_root(self._model)
        tags = Tags(self._collector, self._memory)
        self._recorder = Recorder(self.raw, self._layers, tags, device)
        self._recorder.on_failure = self.fail
        self.state = "watched"
        self._thread = threading.get_ident()
        self._layers.open()
        self._recorder.__enter__()  # type: ignore[no-untyped-call]
        self._start_watched_step()

    def _start_compiled(self) -> None:
        if self.device != "cuda":
            return self.give_up("compiled functions are known by their kernels, and no CUDA device is "
                                "used (--compiled)")  # fmt: skip
        from superneurons.compiled import CompiledSteps

        try:
            collector = Collector(self.options.collector)
        except (OSError, AttributeError) as error:
            return self.give_up(f"the collector cannot be loaded ({error})")
        torch.cuda.synchronize()
        problem = collector.start_into(self._log_path())
        if problem:
            return self.give_up(problem)
        self._collector = collector
        self._memory = MemoryHistory(torch)
        self._memory.open()
        self.raw = RawWriter(self.raw_path(), self._header())
        if self._memory.closed_because:
            self._note(f"tensors are not known: {self._memory.closed_because}")
        self._compiled = CompiledSteps(self.raw, self._memory)
        self.state = "watched"
        self._thread = threading.get_ident()
        self._start_watched_step()

    def _start_collector(self) -> str:
        """Why nothing of the device can be seen, or "". Without the library the rest can."""
        unknown = "the times of kernels are not known: "
        if not self.options.collector:
            self._notes.append(
                f"{unknown}{NAME} was not found (it is built where CUDA is; --library names it)"
            )
            return ""
        try:
            collector = Collector(self.options.collector)
        except (OSError, AttributeError) as error:
            self._notes.append(f"{unknown}the collector cannot be loaded ({error})")
            return ""
        problem = collector.start()
        if not problem:
            self._collector = collector
        return problem

    def _living_optimizers(self) -> list[Any]:
        return [optimizer for known in self._optimizers if (optimizer := known()) is not None]

    def raw_path(self) -> str:
        return os.path.join(self.options.folder, f"capture.{self.process}.jsonl")

    def _log_path(self) -> str:
        return os.path.join(self.options.folder, f"activities.{self.process}.jsonl")

    def _header(self) -> dict[str, Any]:
        cuda = self.device == "cuda"
        return {
            "device": self.device,
            "device_name": torch.cuda.get_device_name() if cuda else "cpu",
            "torch": torch.__version__,
            "python": sys.executable,
            "name": self.options.name
            or os.path.basename(sys.argv[0] if sys.argv else "")
            or "python",
            "rank": int(os.environ.get("RANK", -1)),
            "world": int(os.environ.get("WORLD_SIZE", 1)),
            "tf32": bool(cuda and torch.backends.cuda.matmul.allow_tf32),
            "activities": self._collector is not None,
            "memory": bool(self._memory and not self._memory.closed_because),
            "compiled": self.options.compiled,
            "options": asdict(self.options),
        }

    def _announce(self, number: int, root: int, path: str, module: torch.nn.Module) -> None:
        assert self.raw is not None
        self.raw.line(
            {"r": "module", "id": number, "root": root, "path": path,
             "class": type(module).__name__,
             "weights": next(module.parameters(), None) is not None}
        )  # fmt: skip

    def _note(self, text: str) -> None:
        if self.raw is not None:
            self.raw.line({"r": "note", "text": text})
        else:
            self._notes.append(text)

    def _start_watched_step(self) -> None:
        assert self.raw
        if self._recorder is not None and self._layers is not None:
            self._recorder.states(named_states(self._layers, self._living_optimizers()))
            self._layers.start_step()
        cuda = self.device == "cuda"
        allocated = torch.cuda.memory_allocated() if cuda else 0
        if self._memory is not None and self._recorder is not None:
            self._memory.take()
        self.raw.line({"r": "step", "step": self._watched, "allocated": allocated})
        self._began = time.perf_counter_ns()
        if self._recorder is not None:
            self._recorder.start_step(self._watched)

    def _end_watched_step(self) -> None:
        assert self.raw
        if threading.get_ident() != self._thread:
            return
        if self._recorder is not None:
            self._recorder.active = False
        if self.device == "cuda":
            torch.cuda.synchronize()
        took = time.perf_counter_ns() - self._began
        if self._compiled is not None:
            self._compiled.boundary()
        elif self._memory is not None:
            for call, workspace in workspaces(self._memory.take()).items():
                self.raw.line({"r": "memory", "c": call, "workspace": workspace})
        self.raw.line({"r": "step_end", "step": self._watched, "ns": took})
        self._watched += 1
        if self._watched < self.options.steps:
            return self._start_watched_step()
        if self._recorder is not None and self._layers is not None:
            self._recorder.states(named_states(self._layers, self._living_optimizers()))
        self._stop_watching()
        if self.options.untouched > 0:
            self._start_timing()
        else:
            self.end("")

    def _stop_watching(self) -> None:
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.active = False
            recorder.forget()
            if threading.get_ident() == self._thread and _innermost() is recorder:
                recorder.__exit__(None, None, None)
        if self._layers is not None:
            self._layers.close()
            self._layers = None
        if self._memory is not None:
            self._memory.close()
            self._memory = None
        collector, self._collector = self._collector, None
        if collector is not None:
            if not collector.stop(self._log_path()):
                self._note("the activities of the device could not be written")

    # The untouched training steps.

    def _start_timing(self) -> None:
        self.state = "timed"
        self._untouched.start(self.device)

    # The end.

    def end(self, why: str = "the program ended") -> None:
        """Leaves the program as it was. May be called at any time, and twice."""
        if self.state == "over" or os.getpid() != self.process:
            return
        state, self.state = self.state, "over"
        if state == "watched":
            self._stop_watching()
        elif state == "timed":
            self._untouched.write(self.raw)
        self._eager.close()
        if state == "warmup" and not self.reason:
            self.reason = f"{why} after {self.ended} training steps"
        if self.raw is not None:
            self.raw.line({"r": "end", "why": self.reason or why})
            self.raw.close()
        for handle in self._handles:
            handle.remove()
        self._handles = []
        global current
        current = None if current is self else current

    def give_up(self, reason: str) -> None:
        self.reason = reason
        say(f"not captured: {reason}; the program goes on")
        self.end()

    def fail(self, error: BaseException) -> None:
        """Something here went wrong: the program goes on without it."""
        if self.state == "over":
            return
        self.reason = f"the capture failed, {type(error).__name__}: {error}"
        say(f"{self.reason}; the program goes on")
        with contextlib.suppress(Exception):
            self.end()


def _forked(session: weakref.ref[Session]) -> None:
    """Of a hook that can never be taken away: it must not keep the session alive."""
    known = session()
    if known is not None:
        known.forked()


def _innermost() -> Any:
    from torch.utils._python_dispatch import _get_current_dispatch_mode

    return _get_current_dispatch_mode()
