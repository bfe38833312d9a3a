"""The CUPTI collector (libsuperneurons_cupti) as it is used from Python, and what both it and the
allocator's history are told: which op runs."""

from __future__ import annotations

import ctypes
from typing import Any

from superneurons.memory_history import MemoryHistory

NAME = "libsuperneurons_cupti.so"


class Collector:
    """From start() to stop(). OSError where the library cannot be loaded."""

    def __init__(self, path: str) -> None:
        self.functions: Any = ctypes.PyDLL(path)

    def start(self) -> str:
        """What went wrong, in one sentence, or ""."""
        error = ctypes.create_string_buffer(512)
        if self.functions.superneurons_trace_start(error, ctypes.c_size_t(512)) != 0:
            return error.value.decode("utf-8", "replace")
        return ""

    def start_into(self, path: str) -> str:
        """The same, into a file as it goes: API calls and allocations of the driver too."""
        error = ctypes.create_string_buffer(512)
        start = self.functions.superneurons_trace_start_to
        if start(path.encode(), error, ctypes.c_size_t(512)) != 0:
            return error.value.decode("utf-8", "replace")
        return ""

    def stop(self, path: str) -> bool:
        """Writes the activities of the device to `path`, unless they go to a file anyway; whether
        that worked."""
        return bool(self.functions.superneurons_trace_stop(path.encode()) == 0)


class Tags:
    """Tells the collector and the allocator's history which op runs."""

    def __init__(self, collector: Collector | None, memory: MemoryHistory | None) -> None:
        self._push: Any = None
        self._pop: Any = None
        self._mark = memory.mark if memory is not None else None
        if collector is not None:
            functions = collector.functions
            self._push, self._pop = functions.superneurons_tag_push, functions.superneurons_tag_pop
            self._push.argtypes = [ctypes.c_uint64]

    def push(self, step: int, call: int) -> None:
        if self._push is not None:
            self._push((step + 1) << 32 | call)
        if self._mark is not None:
            self._mark(f"{step}.{call}")

    def pop(self) -> None:
        if self._pop is not None:
            self._pop()
        if self._mark is not None:
            self._mark("")
