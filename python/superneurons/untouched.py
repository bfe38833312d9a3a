"""Training steps that nobody watches: their times, and the peaks of the allocator."""

from __future__ import annotations

import time
from typing import Any

import torch

from superneurons.peaks import Peaks
from superneurons.raw import RawWriter


class Untouched:
    """From start() on, with a note() where each training step ends."""

    def __init__(self) -> None:
        self._cuda = False
        self._times: list[int] = []
        self._events: list[Any] = []
        self._peaks = Peaks(torch)

    @property
    def count(self) -> int:
        """Training steps that have ended."""
        return max(len(self._times) - 1, 0)

    def start(self, device: str) -> None:
        self._cuda = device == "cuda"
        if self._cuda:
            torch.cuda.synchronize()
            self._peaks.open()
        self.note()

    def note(self) -> None:
        self._times.append(time.perf_counter_ns())
        if self._cuda:
            event: Any = torch.cuda.Event(enable_timing=True)
            event.record()
            self._events.append(event)

    def write(self, raw: RawWriter | None) -> None:
        """And forgets them."""
        if raw is not None and self.count > 0:
            host = [b - a for a, b in zip(self._times, self._times[1:])]
            device = host
            if self._cuda:
                torch.cuda.synchronize()
                pairs = zip(self._events, self._events[1:])
                device = [round(a.elapsed_time(b) * 1e6) for a, b in pairs]
            raw.line({"r": "untouched", "ns": device, "host_ns": host, **self._peaks.close()})
        self._times, self._events = [], []
