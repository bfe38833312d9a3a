"""Tensors that outlive a training step and have a name: parameters, buffers, gradients, optimizer
state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from superneurons.layers import Layers, plain_path


@dataclass(frozen=True, slots=True)
class State:
    """A tensor that outlives the training step and has a name."""

    role: str
    name: str
    module: int  # by the number that Layers gave it; -1: none
    tensor: torch.Tensor


def parameters_of(optimizer: Any) -> list[Any]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def named_states(layers: Layers, optimizers: Iterable[Any]) -> Iterator[State]:
    """Those of the models that ran and of what the optimizers update; of two names of a storage the
    later gives the role. Names begin with the number of their root module and a colon."""
    named: dict[int, tuple[str, int]] = {}
    for number, root in enumerate(layers.roots):
        for path, module in root.named_modules():
            layer = layers.ids.get(id(module), -1)
            prefix = f"{number}:" + (plain + "." if (plain := plain_path(path)) else "")
            for name, parameter in module.named_parameters(recurse=False):
                named[id(parameter)] = (prefix + name, layer)
            for name, buffer in module.named_buffers(recurse=False):
                yield State("buffer", prefix + name, layer, buffer)
    parameters = [p for root in layers.roots for p in root.parameters()]
    optimizers = list(optimizers)
    for count, optimizer in enumerate(optimizers):
        for position, parameter in enumerate(parameters_of(optimizer)):
            if id(parameter) not in named:
                named[id(parameter)] = (f":optimizer{count}.{position}", -1)
                parameters.append(parameter)
    for parameter in parameters:
        name, layer = named[id(parameter)]
        if parameter.grad is not None:
            yield State("gradient", name, layer, parameter.grad)
        yield State("parameter", name, layer, parameter)
    for optimizer in optimizers:
        for parameter in parameters_of(optimizer):
            name, layer = named[id(parameter)]
            for key, value in optimizer.state.get(parameter, {}).items():
                if isinstance(value, torch.Tensor):
                    yield State("optimizer_state", f"{name}.{key}", layer, value)
