"""Where training steps of a program end: when its optimizers have stepped."""

from __future__ import annotations

import weakref
from typing import Any


class Rounds:
    """Training steps of a program with several optimizers: one has ended when every optimizer has
    stepped since the last ended. An optimizer that is new belongs to the step that seemed to be
    over."""

    def __init__(self) -> None:
        self._known: weakref.WeakSet[Any] = weakref.WeakSet()
        self._stepped: set[int] = set()
        self.count = 0

    def stepped(self, optimizer: Any) -> bool:
        """Whether this ends a training step."""
        if optimizer not in self._known:
            self._known.add(optimizer)
            self._stepped.clear()
            if len(self._known) > 1:
                return False
            self.count += 1
            return True
        self._stepped.add(id(optimizer))
        if {id(known) for known in self._known} <= self._stepped:
            self._stepped.clear()
            self.count += 1
            return True
        return False
