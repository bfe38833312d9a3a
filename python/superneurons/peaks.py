"""The allocator's peaks over some training steps, although the program may ask for its own later."""

from __future__ import annotations

from typing import Any


def _merge(into: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """`into` with each "peak" at least what it was before."""
    for key, value in into.items():
        old = before.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            _merge(value, old)
        elif key == "peak" and isinstance(old, int):
            into[key] = max(value, old)
    return into


class Peaks:
    """Resets torch.cuda's peaks when opened. From then on the program's own look at them gives the
    most of what was before and what is since, until it resets them itself."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._before: dict[int, dict[str, Any]] = {}
        self._open = False

    def open(self) -> None:
        memory = self._torch.cuda.memory
        original, reset = memory.memory_stats_as_nested_dict, memory.reset_peak_memory_stats
        index = memory._get_device_index
        self._stats = original
        for device in range(self._torch.cuda.device_count()):
            if self._torch.cuda.memory_reserved(device) == 0:
                continue
            self._before[device] = original(device)
            reset(device)
        self._open = True

        def memory_stats_as_nested_dict(device: Any = None) -> dict[str, Any]:
            stats = original(device)
            before = self._before.get(index(device, optional=True))
            return _merge(stats, before) if before else stats

        def reset_peak_memory_stats(device: Any = None) -> Any:
            self._before.pop(index(device, optional=True), None)
            self._open = False
            return reset(device)

        for place in (memory, self._torch.cuda):
            place.memory_stats_as_nested_dict = memory_stats_as_nested_dict
            place.reset_peak_memory_stats = reset_peak_memory_stats

    def close(self) -> dict[str, int]:
        """The peaks since open(): bytes given out, of which asked for, and held. Nothing where the
        program has reset them in between."""
        if not self._open:
            return {}
        stats = self._stats(self._torch.cuda.current_device())
        self._open = False
        return {
            "allocated": stats["allocated_bytes"]["all"]["peak"],
            "requested": stats["requested_bytes"]["all"]["peak"],
            "reserved": stats["reserved_bytes"]["all"]["peak"],
        }
