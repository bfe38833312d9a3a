"""superneurons: traces, plans, device profiles and results of the `superneurons` program in Python.

    traces     one training step as tensors and ops        read_trace, write_trace, trace_hash
    plans      what to do with memory, in issue order      read_plan, write_plan, read_request
    profiles   what the simulator knows of a machine       read_profile, write_profile
    results    what simulate, compare and replay write     read_results, best
    fidelity   predicted beside measured, as a table       python -m superneurons.fidelity
    plot       figures with matplotlib                     python -m superneurons.plot
    launch     a PyTorch script, unedited, as a trace      python -m superneurons.launch
    convert    what was written meanwhile, as a trace      python -m superneurons.convert

and in a PyTorch program `with superneurons.capture("t.jsonl.gz", model=..., optimizer=...)` and
`superneurons.training_step()`, which traces/PYTORCH.md explains.

Everywhere sizes are bytes and times nanoseconds, both whole numbers, unless a name says otherwise.
A file that breaks its format raises `files.BadInput`, whose text is `FILE:LINE: what is wrong`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from superneurons.context import Capture

__version__ = "0.1.0"
__all__ = ["capture", "training_step"]


def capture(path: str, **options: Any) -> Capture:
    """A context that captures training steps of a PyTorch program which run inside it; see
    `superneurons.context.Capture` for the options. Needs PyTorch."""
    from superneurons.context import Capture

    return Capture(path, **options)


def training_step() -> None:
    """Marks the end of a training step, for programs whose optimizers do not tell it. Once it is
    called, optimizers do not count any more. Without a capture it does nothing."""
    session = sys.modules.get("superneurons.session")
    if session is not None and session.current is not None:
        session.current.mark()
