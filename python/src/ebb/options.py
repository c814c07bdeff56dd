"""The options of sessions and generations: their names and types, and how they are passed on."""

from __future__ import annotations

import difflib
import inspect
from typing import Any, Callable, Iterable, Mapping, Sequence, TypedDict

from .errors import InvalidArgument
from .scorer import Placement, Scorer

#: Options of Engine.session(), which Model.session() takes too.
ENGINE_OPTIONS = ("threads", "kv_type", "kv_cap", "device", "prefill_chunk", "draft_model", "draft_kv_type")
TIERS = ("t0", "t1", "t1_read", "t2", "evict", "evict_of")


class SessionOptions(TypedDict, total=False):
    """The options of `Engine.session()`."""

    policy: str | None
    scorer: str | Callable[[], Scorer] | None
    placement: Callable[[], Placement] | None
    budget: str | int | None
    sinks: int | None
    window: int | None
    interval: int | None
    granularity: str | None
    t0: str | None
    t1: str | None
    t1_read: str | None
    read: str | None
    t2: str | None
    evict: str | None
    evict_of: str | None
    lossless: bool
    verify: str | None
    draft_min: int | None
    draft_max: int | None
    context: int
    past_context: str | None
    speculate: str
    seed: int
    ledger: bool


class ModelSessionOptions(SessionOptions, total=False):
    """The options of `Model.session()`."""

    threads: int
    kv_type: str
    kv_cap: str | None
    device: str | None
    prefill_chunk: int
    draft_model: Any
    draft_kv_type: str | None


class GenerateOptions(TypedDict, total=False):
    """The options of `Session.generate()`."""

    max_tokens: int
    min_tokens: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repeat_penalty: float
    repeat_last_n: int
    presence_penalty: float
    frequency_penalty: float
    dynatemp_range: float
    dynatemp_exponent: float
    typical_p: float
    top_n_sigma: float
    xtc_probability: float
    xtc_threshold: float
    dry_multiplier: float
    dry_base: float
    dry_allowed_length: int
    dry_penalty_last_n: int
    dry_sequence_breakers: Sequence[str]
    mirostat: int
    mirostat_tau: float
    mirostat_eta: float
    samplers: str
    seed: int
    grammar: str
    stop: str | Sequence[str]
    ignore_eos: bool
    thinking_budget: int
    progress: Callable[[int], None] | None


def do_you_mean(name: str, known: Iterable[str]) -> str:
    """'; do you mean "window"?' for "windw"; "" if no known name is like it."""
    close = difflib.get_close_matches(name, known, 1)
    return f'; do you mean "{close[0]}"?' if close else ""


def check_names(options: Mapping[str, Any], function: Callable[..., Any]) -> None:
    """Raises TypeError, as Python does, for a keyword that `function` does not take."""
    known = [name for name, parameter in inspect.signature(function).parameters.items()
             if parameter.kind is inspect.Parameter.KEYWORD_ONLY]
    for name in options:
        if name not in known:
            raise TypeError(f"got an unexpected keyword argument '{name}'{do_you_mean(name, known)}")


def check_factory(value: Any, base: type, argument: str) -> None:
    """Raises InvalidArgument unless `value` makes a new scorer or placement for each session."""
    if isinstance(value, base):
        name = type(value).__name__
        raise InvalidArgument(f"expected a class, or a callable that makes an object for each session; found an object "
                              f"of {name}: give {name} itself", field=argument)
    if not callable(value):
        raise InvalidArgument(f"expected a name, a subclass of ebb.{base.__name__} or a callable that makes one; "
                              f"found {value!r}", field=argument)


def given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The options among the arguments of a function, without those that are None."""
    return {name: value for name, value in arguments.items()
            if value is not None and name not in ("self", "model", "prompt")}


def generate_options(arguments: Mapping[str, Any]) -> dict[str, Any]:
    options = given(arguments)
    if isinstance(options.get("stop"), str):
        options["stop"] = [options["stop"]]
    for name in ("stop", "dry_sequence_breakers"):
        if name in options:
            options[name] = list(options[name])
    return options
