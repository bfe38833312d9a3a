"""Training steps of a program that torch.compile has made (--compiled): of a compiled function no op
can be seen, so they are known by what the device did, the collector's log, and by what the allocator
gave out, its own history. superneurons.compiled_trace joins the two afterwards."""

from __future__ import annotations

import time
from typing import Any

import torch

from superneurons.memory_history import MemoryHistory, rounded
from superneurons.raw import RawWriter

# Where a training step begins or ends the host waits that many times for the device: calls that are
# in the log, and of which the clock of the host is known too.
WAITS = 8


class CompiledSteps:
    """Writes what the allocator does, and where training steps begin and end."""

    def __init__(self, raw: RawWriter, memory: MemoryHistory) -> None:
        """Begins with what is on the device already."""
        self._raw, self._memory = raw, memory
        for segment in torch.cuda.memory._snapshot()["segments"]:
            self._segment(segment["address"], segment["total_size"])
            address = segment["address"]
            for block in segment["blocks"]:
                if block["state"] != "inactive":
                    raw.line({"r": "held", "address": address, "bytes": rounded(block["size"])})
                address += block["size"]
        memory.take()
        self.boundary()

    def boundary(self) -> None:
        """Between two training steps."""
        clocks = []
        for count in range(WAITS):
            time.sleep(count * 1e-4)  # the times between them tell these waits from others
            before = time.time_ns()
            torch.cuda.synchronize()
            clocks.append([before, time.time_ns()])
        for event in self._memory.take():
            self._event(event)
        self._raw.line({"r": "boundary", "clocks": clocks})

    def _event(self, event: dict[str, Any]) -> None:
        action, address = event["action"], event["addr"]
        if action in ("alloc", "free_completed"):
            self._raw.line({"r": "allocate" if action == "alloc" else "free", "address": address,
                            "bytes": rounded(event["size"]), "us": event["time_us"]})  # fmt: skip
        elif action in ("segment_alloc", "segment_map"):
            self._segment(address, event["size"])

    def _segment(self, address: int, size: int) -> None:
        self._raw.line({"r": "segment", "address": address, "bytes": size})
