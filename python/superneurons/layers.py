"""Which module an op of PyTorch belongs to, and in which phase it runs.

A stack of modules in forward; in backward the module whose forward op made the autograd node that
runs, by sequence number.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)

_CHECKPOINT = "checkpoint.py"
_COMPILED = "_orig_mod"  # in torch.compile(module), the module


def plain_path(path: str) -> str:
    """The path of a module as it is without torch.compile."""
    return ".".join(part for part in path.split(".") if part != _COMPILED) if path else path


class Layers:
    """Numbers modules as they are met. `announce(id, root, path, module)` is called once for each,
    a root being a module that no other called (the model; a loss)."""

    def __init__(self, announce: Callable[[int, int, str, torch.nn.Module], None]) -> None:
        self._announce = announce
        self.ids: dict[int, int] = {}  # id(module) to our number
        self.roots: list[torch.nn.Module] = []
        self._modules: list[torch.nn.Module] = []  # keeps the ids above unique
        self._root_of: list[int] = []
        self._path_of: list[str] = []
        self.stack: list[int] = []
        self._by_sequence: dict[int, int] = {}
        self._handles: list[Any] = []
        self.in_update = False
        self.micro_batch = 0
        self._first_root = -1
        self._seen_backward = False
        self._since_forward = False  # backward has run since a module last did

    def add_root(self, module: torch.nn.Module) -> None:
        if id(module) in self.ids:
            return
        root = len(self.roots)
        self.roots.append(module)
        for path, part in module.named_modules():
            self._add(part, root, plain_path(path))

    def _add(self, module: torch.nn.Module, root: int, path: str) -> int:
        number = len(self._modules)
        self.ids[id(module)] = number
        self._modules.append(module)
        self._root_of.append(root)
        self._path_of.append(path)
        self._announce(number, root, path, module)
        return number

    def open(self) -> None:
        self._handles = [
            register_module_forward_pre_hook(self._enter),
            register_module_forward_hook(self._leave, always_call=True),
        ]

    def close(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self.stack.clear()
        self._by_sequence.clear()

    def start_step(self) -> None:
        self._by_sequence.clear()
        self.micro_batch = 0
        self._first_root = -1
        self._seen_backward = self._since_forward = False

    def _enter(self, module: torch.nn.Module, inputs: Any) -> None:
        number = self.ids.get(id(module))
        if number is None:
            if self.stack:
                top = self.stack[-1]
                path = f"{self._path_of[top]}.{type(module).__name__}".lstrip(".")
                number = self._add(module, self._root_of[top], path)
            else:
                self.add_root(module)
                number = self.ids[id(module)]
        backward = torch._C._current_graph_task_id() != -1
        if not backward:
            self._since_forward = False
            if not self.stack and next(module.parameters(), None) is not None:
                self._new_forward(self._root_of[number])
        self.stack.append(number)

    def _new_forward(self, root: int) -> None:
        """The same model runs forward again after a backward: the next micro-batch."""
        if self._first_root < 0:
            self._first_root = root
        if self._seen_backward and root == self._first_root and not self.in_update:
            self.micro_batch += 1
        self._seen_backward = False

    def _leave(self, module: torch.nn.Module, inputs: Any, output: Any) -> None:
        number = self.ids.get(id(module))
        while self.stack and self.stack.pop() != number:
            pass

    def place(self) -> tuple[str, int]:
        """Phase and module (-1: none) of what this thread runs now."""
        if torch._C._current_graph_task_id() != -1:
            self._seen_backward = self._since_forward = True
            if torch.is_grad_enabled() and (self.stack or _in_checkpoint()):
                return "recompute", self._note(self.stack[-1] if self.stack else -1)
            node = torch._C._current_autograd_node()
            return "backward", self._by_sequence.get(node._sequence_nr(), -1) if node else -1
        if self.stack:
            return "forward", self._note(self.stack[-1])
        if self.in_update:
            return "update", -1
        if self._since_forward or not torch.is_grad_enabled():
            return "other", -1
        return "forward", self._note(-1)

    def _note(self, module: int) -> int:
        # The node of this op took its number just before: the next to be given out is one more.
        # Ops that need no gradient come with the number of an earlier node: that one is known.
        self._by_sequence.setdefault(torch._C._autograd._get_sequence_nr() - 1, module)
        return module


def _in_checkpoint() -> bool:
    """Whether torch.utils.checkpoint calls what runs now (of functions that are no module)."""
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_filename.endswith(_CHECKPOINT):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False
