"""Which tiers fit into so much memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import _ebb
from .engine import Model


@dataclass(frozen=True)
class Fit:
    """What fits into so much memory.

    Attributes:
        setting: as the program's options: "--t0 30% --t1 file".
        options: the same as options of `Engine` and `Model.session()`.
        context: tokens that were planned for.
        bytes: of memory, and what it consists of; `t1_disk` lies in a file.
    """

    setting: str
    options: dict[str, str]
    context: int
    bytes: dict[str, int]


def fit(
    model: Model,
    memory: str,
    *,
    prompt_tokens: int = 0,
    max_tokens: int = -1,
    context: int = 0,
    kv_type: str = "f16",
    t0: str | None = None,
    t1: str | None = None,
    t1_read: str | None = None,
    t2: str | None = None,
    evict: str | None = None,
    evict_of: str | None = None,
) -> Fit:
    """The gentlest tiers with which a generation stays within `memory` bytes, weights included.

        plan = ebb.fit(model, "2GiB", prompt_tokens=500, max_tokens=20_000)
        session = model.session(**plan.options)

    Args:
        memory: "8GiB".
        prompt_tokens, max_tokens: tokens that are given, and that may follow; -1: as many as the
            context holds.
        t0, t1, t1_read, t2, evict, evict_of: tiers that are checked instead.
    Raises:
        LimitReached: nothing fits; the message has the least memory that is needed.
    """
    options = dict(context=context, kv_type=kv_type, t0=t0, t1=t1, t1_read=t1_read, t2=t2, evict=evict,
                   evict_of=evict_of)
    plan = dict(_ebb.fit(model._core, memory, prompt_tokens, max_tokens, options))
    return Fit(plan.pop("setting"), plan.pop("options"), plan.pop("context"), plan)


def fit_table(
    model: Model, context: int, *, prompt_tokens: int = 0, kv_type: str = "f16"
) -> list[dict[str, Any]]:
    """What a generation of `context` tokens takes under one setting of each kind: dictionaries of a
    `setting`, its `options` of session() and its bytes, for `pandas.DataFrame`."""
    return _ebb.fit_table(model._core, context, prompt_tokens, kv_type)
