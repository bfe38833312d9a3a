"""In a program started by `superneurons trace -- python ...`: waits for PyTorch to be imported,
then starts a capture session. The options come as JSON in $SUPERNEURONS_CAPTURE."""

from __future__ import annotations

import atexit
import contextlib
import importlib.abc
import importlib.machinery
import json
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

VARIABLE = "SUPERNEURONS_CAPTURE"


class _Loader(importlib.abc.Loader):
    """Loads PyTorch as always, and tells afterwards."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # The module shall see its own loader, as it does without us.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        start()


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != "torch":
            return None
        with contextlib.suppress(ValueError):
            sys.meta_path.remove(self)
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec: importlib.machinery.ModuleSpec | None = find(name, path, target) if find else None
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader)
                return spec
        return None


def arm() -> None:
    if "torch" in sys.modules:
        start()
    else:
        sys.meta_path.insert(0, _Finder())


def start() -> None:
    """PyTorch is there. Nothing that fails here is the program's concern."""
    status = None
    try:
        from superneurons.options import Options

        options = Options(**json.loads(os.environ[VARIABLE]))
        status = Status(os.path.join(options.folder, f"status.{os.getpid()}.json"))
        from superneurons import session

        session.current = started = session.Session(options)
        started.on_step = status.tell
        atexit.register(_at_exit, started, status)
    except Exception as error:  # noqa: BLE001
        print(f"superneurons: not captured: {error}", file=sys.stderr, flush=True)
        if status is not None:
            status.tell(0, str(error), failed=True)


class Status:
    """What this process tells the launcher of itself: how far it came, should it be killed, and in
    the end what became of it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.tell(0)

    def tell(
        self, steps: int, reason: str = "", ended: bool = False, failed: bool = False
    ) -> None:
        """`failed`: no capture could begin, and the user has read why."""
        with contextlib.suppress(OSError):
            text = json.dumps(
                {"steps": steps, "ended": ended, "failed": failed, "reason": reason}
            )
            with open(self._path, "w", encoding="utf-8") as file:
                file.write(text)


def _at_exit(ended: Any, status: Status) -> None:
    """Tells the launcher. A process without any training step may be a data-loader worker."""
    if os.getpid() != ended.process:
        return
    with contextlib.suppress(Exception):
        ended.end()
        status.tell(ended.ended, ended.reason, ended=True)
