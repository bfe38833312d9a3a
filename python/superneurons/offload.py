"""--offload-capture: what autograd saves for backward lives on the host, so that a model that does
not fit can be run once. The copies are not part of the program and leave no trace: a saved tensor
counts as alive on the device for as long as the program would have kept it."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

from superneurons.dispatch import STRIPPED_CALL, Recorder, plain


class _Saved:
    """A saved tensor on the host, and which storage it is of."""

    __slots__ = ("bytes", "tensor", "known", "offset", "__weakref__")

    def __init__(self, data: torch.Tensor, tensor: torch.Tensor, known: Any, offset: int) -> None:
        self.bytes, self.known, self.offset = data, known, offset
        # What makes the tensor again; not the tensor.
        self.tensor = (tensor.dtype, tensor.shape, tensor.stride(), tensor.device)


class OffloadSaved:
    """Hooks of saved tensors, of this thread, from open() to close()."""

    def __init__(self, recorder: Callable[[], Recorder | None]) -> None:
        self._recorder = recorder
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self.pack, self.unpack)

    def open(self) -> None:
        self._hooks.__enter__()

    def pack(self, tensor: Any) -> Any:
        recorder = self._recorder()
        device = recorder.device if recorder is not None else "cuda"
        span = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride()))
        if (
            tensor.device.type != device
            or not plain(type(tensor))
            or tensor.layout is not torch.strided
            or tensor.numel() == 0
            or isinstance(tensor, torch.nn.Parameter)
            or (tensor._base is not None and isinstance(tensor._base, torch.nn.Parameter))
        ):
            return tensor
        active = recorder is not None and recorder.active
        known, offset = None, 0
        if recorder is not None and active:
            seen, _ = recorder.known(tensor)
            known, offset = seen.known, seen.shift + tensor.storage_offset() * tensor.element_size()
        with _quiet(recorder), torch.no_grad():
            data = tensor.detach().as_strided((span,), (1,)).to("cpu", copy=True)
        saved = _Saved(data, tensor, known, offset)
        if recorder is not None and known is not None:
            known.holders += 1
            weakref.finalize(saved, recorder.release, known).atexit = False
        return saved

    def unpack(self, saved: Any) -> torch.Tensor:
        if not isinstance(saved, _Saved):
            return saved  # type: ignore[no-any-return]
        recorder = self._recorder()
        dtype, shape, stride, device = saved.tensor
        with _quiet(recorder), torch.no_grad():
            data = saved.bytes.to(device, copy=True)
            if recorder is not None and saved.known is not None and saved.known.holders > 0:
                saved.known.holders += 1
                recorder.watch(data.untyped_storage(), saved.known, saved.offset)
            return data.as_strided(shape, stride)


class _quiet:
    """What runs in here is not the program's."""

    def __init__(self, recorder: Recorder | None) -> None:
        self._recorder = recorder if recorder is not None and recorder.active else None

    def __enter__(self) -> None:
        if self._recorder is not None:
            self._recorder.paused = True
            self._recorder.tags.push(self._recorder.step, STRIPPED_CALL)

    def __exit__(self, *_: Any) -> None:
        if self._recorder is not None:
            self._recorder.tags.pop()
            self._recorder.paused = False
