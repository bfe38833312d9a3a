"""What PyTorch's caching allocator did inside each op: workspaces that no tensor shows.

The allocator's own history (torch.cuda.memory._record_memory_history) with every event stamped by
the call that was running (_set_memory_metadata), joined when a training step has ended.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

ROUNDING = 512  # bytes: what the caching allocator gives out in


def rounded(size: int) -> int:
    return (size + ROUNDING - 1) // ROUNDING * ROUNDING


class MemoryHistory:
    """Records while open. Nothing is recorded where the program itself records (`closed_because`)."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self.closed_because = ""
        self._open = False

    def open(self) -> None:
        native = self._torch._C
        if getattr(native, "_cuda_isHistoryEnabled", lambda: False)():
            self.closed_because = "the program records the allocator's history itself"
        elif not hasattr(native, "_cuda_setMemoryMetadata"):
            self.closed_because = "this PyTorch does not mark allocations (2.10 does)"
        else:
            self._start()

    def _start(self) -> None:
        self._torch.cuda.memory._record_memory_history("all", context=None, clear_history=True)
        self._open = True

    def mark(self, call: str) -> None:
        if self._open:
            self._torch._C._cuda_setMemoryMetadata(call)

    def take(self) -> list[dict[str, Any]]:
        """The events so far, which are then forgotten."""
        if not self._open:
            return []
        snapshot = self._torch.cuda.memory._snapshot()
        self._start()
        return [event for device in snapshot["device_traces"] for event in device]

    def close(self) -> None:
        if self._open:
            self._torch._C._cuda_setMemoryMetadata("")
            self._torch.cuda.memory._record_memory_history(None)
            self._open = False


def workspaces(events: Iterable[dict[str, Any]]) -> dict[int, int]:
    """By call: bytes that were alive inside it beyond what it left or took away. Events are marked "step.call"."""
    level: dict[int, int] = {}
    most: dict[int, int] = {}
    sizes: dict[int, int] = {}  # of addresses, for frees of what was rounded
    for event in events:
        action, mark = event["action"], event.get("user_metadata", "")
        size = rounded(event["size"])
        if action == "alloc":
            sizes[event["addr"]] = size
        if not mark or "." not in mark or action not in ("alloc", "free_completed"):
            continue
        call = int(mark.partition(".")[2])
        change = size if action == "alloc" else -sizes.pop(event["addr"], size)
        level[call] = level.get(call, 0) + change
        most[call] = max(most.get(call, 0), level[call])
    beyond = {call: most[call] - max(level[call], 0) for call in sorted(level)}
    return {call: size for call, size in beyond.items() if size > 0}
