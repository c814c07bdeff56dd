"""Evaluations: a model answers problems under many settings of its cache, and every answer is judged.

The problems, the verdicts and the numbers are those of `ebb-lab eval`; pandas and scipy are needed (`pip
install ebb[lab]`). Answers of MATH are compared as texts of boxes: `ebb.judge()` judges them by value.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Callable, Iterable, NamedTuple, Sequence

from . import _ebb
from .engine import Model
from .errors import InvalidArgument

if TYPE_CHECKING:
    import pandas


def _settings(
    policies: Iterable[Any],
    budgets: Iterable[str],
    settings: Iterable[dict[str, Any]],
    seeds: Iterable[int],
    temperature: float,
) -> list[dict[str, Any]]:
    """The grid of `ebb-lab eval`, in its order: settings, policies, budgets, seeds."""
    grid: list[dict[str, Any]] = []
    for given in settings:
        for policy in policies:
            for budget in budgets:
                for seed in seeds:
                    setting = {k: v for k, v in given.items() if v is not None}
                    if isinstance(policy, str):
                        setting["policy"] = policy
                    else:
                        # A scorer in Python decides as `attention` does unless the setting says more.
                        setting.setdefault("policy", "attention")
                        setting["scorer"] = policy
                    scorer = setting.get("scorer")
                    if scorer is not None and not isinstance(scorer, str):
                        setting["name"] = getattr(scorer, "__name__", type(scorer).__name__)
                    if budget:
                        setting["budget"] = str(budget)
                    setting["seed"] = seed
                    grid.append(setting)
                    drawn = "name" in setting or _ebb.is_randomized(setting)
                    if not drawn and temperature == 0:
                        break
    return grid


class PebbleProblem(NamedTuple):
    """A puzzle in simple English that needs a long thought; the answer is one word."""

    question: str
    answer: str
    family: str


def pebble_problem(seed: int = 0, number: int = 0) -> PebbleProblem:
    """The problem with this number of the endless list of `seed`, which task="pebble" asks."""
    return PebbleProblem(*_ebb.pebble_problem(seed, number))


def eval(
    model: Model | str = "pebble",
    *,
    task: str = "pebble",
    problems: int = 200,
    policies: Sequence[Any] = ("full",),
    budgets: Sequence[str | int] = ("",),
    settings: Sequence[dict[str, Any]] = ({},),
    seeds: Sequence[int] = (0,),
    seed: int = 0,
    temperature: float = 0.0,
    top_k: int = 40,
    top_p: float = 0.95,
    min_p: float = 0.05,
    max_tokens: int = 0,
    prompt_preset: str = "plain",
    prompt_style: str = "chat",
    workers: int = 0,
    batch: int = 0,
    out: str | os.PathLike[str] | None = None,
    on_answer: Callable[[dict[str, Any]], None] | None = None,
) -> pandas.DataFrame:
    """Runs every setting over every problem; one row of the DataFrame for each answer.

    Columns are the fields of a line of `ebb-lab eval`'s results.jsonl, and `seconds`.

        answers = ebb.eval(policies=["full", "h2o", Peak], budgets=["25%"],
                           settings=[{"window": 16, "interval": 16}], problems=50)
        print(ebb.summarize(answers))

    Args:
        model: a model, or what `Model` takes; "pebble" is inside this package.
        task: "pebble", or a file of problems: "GSM8K.jsonl[:gsm8k]".
        problems: how many of them; 0: all of the file.
        policies: names, and subclasses of `ebb.Scorer`, which decide as `attention` does.
        budgets: for each policy that takes one: "25%", 1024.
        settings: options of `Engine.session()` that all policies are run with, a dictionary for each
            setting: {"t0": "50%", "evict": "5%"}; a `scorer` may be a subclass of `ebb.Scorer`.
        seeds: of sampling, and of policies that draw lots; others are run once at temperature 0.
        seed: of pebble's problems, and of the order of a file's options.
        temperature: 0 always takes the likeliest token.
        max_tokens: of an answer; 0: the task's own limit.
        workers: problems at a time, a thread each; 0: one for each core.
        batch: step so many problems together, a multiple of 4; 0: each by itself.
        out: a file for the lines of results.jsonl, the same bytes as `ebb-lab eval` writes.
        on_answer: called with each answer as it comes.
    """
    import pandas

    if not isinstance(model, Model):
        model = Model(model)
    grid = _settings(policies, budgets or ("",), settings, seeds, temperature)
    options = dict(
        task=task, problems=problems, seed=seed, temperature=temperature, top_k=top_k, top_p=top_p,
        min_p=min_p, max_tokens=max_tokens, prompt_preset=prompt_preset, prompt_style=prompt_style,
        workers=workers, batch=batch,
    )
    lines = _ebb.evaluate(model._core, grid, options, on_answer)
    if out is not None:
        with open(out, "w", encoding="utf-8") as file:
            for line in lines:
                kept = {key: value for key, value in line.items() if key != "seconds"}
                file.write(json.dumps(kept, ensure_ascii=False, separators=(",", ":")) + "\n")
    return pandas.DataFrame(lines)


def summarize(answers: pandas.DataFrame) -> pandas.DataFrame:
    """One row for each setting, seeds put together: `accuracy` with the 95 % interval of Clopper and
    Pearson (`low`, `high`), and means of what the cache took."""
    import pandas

    from .summary import interval

    if len(answers) == 0:
        raise InvalidArgument("there are no answers")
    by = ["policy", "budget", "tiers", "options"]
    rows = []
    for key, group in answers.groupby(by, sort=False):
        right, number = int(group["correct"].sum()), len(group)
        low, high = interval(right, number)
        began = group[group["error"].isna()] if "error" in group else group
        rows.append(
            dict(zip(by, key))
            | dict(
                problems=number, right=right, accuracy=right / number, low=low, high=high,
                generated_tokens=began["generated_tokens"].mean(),
                peak_tokens=began["peak_tokens"].mean(),
                peak_kv_bytes=began["peak_kv_bytes"].mean(), kv_reads=began["kv_reads"].mean(),
                seconds=group["seconds"].sum(),
            )
        )
    return pandas.DataFrame(rows)
