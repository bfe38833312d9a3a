"""What the schema of an op says about it: what it writes, whether it only makes a view, whether it
draws random numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

# Ops that make a storage and leave it as it is: the first write comes later.
_EMPTY = {"aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty",
          "aten::new_empty_strided"}  # fmt: skip
# In-place ops whose result does not depend on what was there.
_OVERWRITES = {"aten::copy_", "aten::zero_", "aten::fill_", "aten::normal_", "aten::uniform_",
               "aten::bernoulli_", "aten::random_", "aten::exponential_", "aten::_foreach_copy_",
               "aten::_foreach_zero_", "aten::log_normal_", "aten::geometric_"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Kind:
    """What the schema of an op says."""

    func: Any  # kept, since it is known by its id
    name: str
    view: bool  # gives other names to memory, and nothing else
    empty: bool
    overwrites: bool
    random: bool
    many: bool  # a multi-tensor op
    writes: bool  # something that it is given
    written: tuple[tuple[int, str, bool], ...]  # position, name, whether it is an output only
    statistics: tuple[tuple[int, str], ...]  # of batch norm, which only schemas hide
    training: tuple[int, str] | None


def flat(values: Any) -> Any:
    """A list of lists of tensors as one list; others as they are."""
    if values and isinstance(values[0], (list, tuple)):
        return [each for part in values if isinstance(part, (list, tuple)) for each in part]
    return values


def learn(func: Any) -> Kind:
    schema = func._schema
    written, statistics, training = [], [], None
    for position, each in enumerate(schema.arguments):
        if each.alias_info is not None and each.alias_info.is_write:
            written.append((position, each.name, bool(each.is_out)))
        if each.name in ("running_mean", "running_var"):
            statistics.append((position, each.name))
        if each.name in ("training", "train"):
            training = (position, each.name)
        if _sent_into(schema.name, each.name):
            written.append((position, each.name, each.name.startswith("output")))
    returns = schema.returns
    view = bool(returns) and not written and all(r.alias_info is not None for r in returns)
    # aten::set_, aten::t_: the tensor looks at other memory from now on, and none is written.
    if torch.Tag.inplace_view in func.tags and not schema.name.startswith("aten::resize"):
        view = True
    if "backward" in schema.name:
        statistics = []
    return Kind(
        func=func,
        name=schema.name,
        view=view,
        empty=schema.name in _EMPTY,
        overwrites=schema.name in _OVERWRITES,
        random=torch.Tag.nondeterministic_seeded in func.tags,
        many="_foreach" in schema.name or "_fused" in schema.name,
        writes=bool(written or statistics),
        written=tuple(written),
        statistics=tuple(statistics),
        training=training,
    )


def _sent_into(op: str, argument: str) -> bool:
    """Whether an op between ranks writes an argument, which their schemas do not say."""
    return (
        op.startswith("c10d::")
        and op.endswith("_")
        and "barrier" not in op
        and argument.startswith(("tensors", "output"))
    )


def argument(args: Any, kwargs: Any, position: int, name: str) -> Any:
    return args[position] if position < len(args) else kwargs.get(name)
