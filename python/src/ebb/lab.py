"""Evaluations: a model answers problems under many settings of its cache, and every answer is judged.

The problems, the verdicts and the numbers are those of `ebb-lab eval`; pandas and scipy are needed (`pip install
'./python[lab]'` in a checkout). Answers of MATH are compared as texts of boxes: `ebb.judge_answers()` judges them by
value.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
import time
import warnings
from typing import TYPE_CHECKING, Any, Callable, Iterable, NamedTuple, Sequence

import numpy as np

from . import _ebb
from .engine import Engine, Model
from .errors import InvalidArgument, NotFound
from .identity import callable_of, identity
from .options import check_factory, do_you_mean
from .scorer import Placement, Scorer

if TYPE_CHECKING:
    import pandas


def _known_options() -> dict[str, inspect.Parameter]:
    """The options of a setting: those of `Engine` and of `Engine.session()`."""
    of = {**inspect.signature(Engine.__init__).parameters, **inspect.signature(Engine.session).parameters}
    return {name: parameter for name, parameter in of.items()
            if name not in ("self", "model", "threads", "seed", "ledger", "policy", "budget")}


def _check_options(setting: dict[str, Any]) -> None:
    known = _known_options()
    for key in setting:
        if key in known:
            continue
        if key in ("policy", "budget", "seed"):
            raise InvalidArgument(f'"{key}" is a separate list, not a member of settings', field="settings")
        hint = do_you_mean(key, known) or f'; there are {", ".join(known)}'
        raise InvalidArgument(f'there is no option "{key}"{hint}', field="settings")


class _Parts:
    """The parts of a setting's policy that are Python code, and their names in results."""

    def __init__(self, setting: dict[str, Any]) -> None:
        self.names: dict[str, str] = {}
        self.codes: list[str] = []
        for part, base in (("scorer", Scorer), ("placement", Placement)):
            given = setting.get(part)
            if given is None or isinstance(given, str):
                continue
            check_factory(callable_of(given), base, part)
            self.names[part], code = identity(given, part)
            self.codes.append(code)
            setting[part] = callable_of(given)

    def label(self, policy: str) -> str:
        scorer = self.names.get("scorer", "")
        if "placement" in self.names:
            return self.names["placement"] + (f"+scorer={scorer}" if scorer else "")
        return scorer if policy == "attention" else f"{policy}+scorer={scorer}"


def _settings(
    policies: Iterable[Any],
    budgets: Iterable[Any],
    settings: Iterable[dict[str, Any]],
    seeds: Iterable[int],
    temperature: float,
) -> list[dict[str, Any]]:
    """The grid of `ebb-lab eval`, in its order: settings, policies, budgets, seeds."""
    grid: list[dict[str, Any]] = []
    codes: dict[str, Any] = {}  # the code of each name that the caller gave
    for given in settings:
        _check_options(given)
        for policy in policies:
            setting = {key: value for key, value in given.items() if value is not None}
            if isinstance(policy, str):
                setting["policy"] = policy
            else:
                # A scorer in Python decides as `attention` does.
                setting["policy"] = "attention"
                setting["scorer"] = policy
            for part in ("scorer", "placement"):
                one = setting.get(part)
                if isinstance(one, tuple) and codes.setdefault(one[0], one[1:]) != one[1:]:
                    raise InvalidArgument(f'two different {part}s are named "{one[0]}"', field=part)
            parts = _Parts(setting)
            if parts.codes:
                setting |= dict(label=parts.label(setting["policy"]), code="+".join(parts.codes))
            for budget in budgets:
                for seed in seeds:
                    one = setting | dict(seed=seed) | ({"budget": str(budget)} if budget else {})
                    grid.append(one)
                    if not parts.codes and not _ebb.is_randomized(one) and temperature == 0:
                        break
    return grid


class Problem(NamedTuple):
    """A problem as `ebb.eval(prompt=..., judge=...)` get it.

    Attributes:
        id: unique in its task.
        question: with the options of a choice, a line each.
        reference: the right answer.
        kind: "number", "formula", "option" or "word".
    """

    id: str
    question: str
    reference: str
    kind: str


class PebbleProblem(NamedTuple):
    """A puzzle in simple English that needs a long thought; the answer is one word."""

    question: str
    answer: str
    family: str


def pebble_problem(seed: int = 0, number: int = 0) -> PebbleProblem:
    """The problem with this number of the endless list of `seed`, which task="pebble" asks."""
    return PebbleProblem(*_ebb.pebble_problem(seed, number))


def _judge(judge: Callable[..., Any]) -> Callable[[Problem, str, str], tuple[str, str]]:
    """A judge whose answers are (outcome, extracted)."""

    def judged(problem: Problem, text: str, answer: str) -> tuple[str, str]:
        verdict = judge(problem, answer or text)
        verdict, extracted = verdict if isinstance(verdict, tuple) else (verdict, "")
        if isinstance(verdict, (bool, np.bool_)):
            verdict = "right" if verdict else "wrong"
        if verdict not in ("right", "wrong", "no_answer", "empty"):
            raise TypeError(f"judge(): expected True, False, right, wrong, no_answer or empty, found {verdict!r}")
        return verdict, str(extracted)

    return judged


def _prompt(prompt: Callable[..., Any]) -> Callable[[Problem], str]:
    def asked(problem: Problem) -> str:
        text = prompt(problem)
        if not isinstance(text, str):
            raise TypeError(f"prompt(): expected a text, found {text!r}")
        return text

    return asked


class _Progress:
    """A line on stderr that is drawn again as answers come."""

    def __init__(self, show: bool | None) -> None:
        self.show = sys.stderr.isatty() if show is None else show
        self.began, self.drawn, self.first = time.monotonic(), 0.0, 0

    def update(self, done: int, total: int, was_there: bool) -> None:
        now = time.monotonic()
        if was_there:
            self.first = done
        if not self.show or (now - self.drawn < 0.1 and done < total):
            return
        self.drawn = now
        full = 24 * done // total
        rate = (done - self.first) / max(now - self.began, 1e-9)
        left = f", {(total - done) / rate:.0f} s left" if rate > 0 and done < total else ""
        print(f"\ranswering [{'#' * full}{' ' * (24 - full)}] {done} of {total} answers{left}\x1b[K",
              end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self.drawn:
            print(file=sys.stderr)


def eval(
    model: Model | str = "pebble",
    *,
    task: str | os.PathLike[str] = "pebble",
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
    answer_rules: str | None = None,
    prompt_style: str = "chat",
    prompt: Any = None,
    judge: Any = None,
    workers: int = 0,
    batch: int = 0,
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    shard: str = "0/1",
    any_version: bool = False,
    progress: bool | None = None,
    on_answer: Callable[[dict[str, Any]], None] | None = None,
) -> pandas.DataFrame:
    """Runs every setting over every problem; one row of the DataFrame for each answer.

    Columns are the fields of a line of `ebb-lab eval`'s results.jsonl, and `seconds`.

        answers = ebb.eval(policies=["full", "h2o", Peak], budgets=["25%"],
                           settings=[{"window": 16, "interval": 16}], problems=50, out="runs/peak")
        print(ebb.summarize(answers))

    Settings that differ in any option, or in the code of a policy or the values that it was made with, have names that
    differ, and their answers are never put together.

    Args:
        model: a model, or what `Model` takes; "pebble" is inside this package.
        task: "pebble", or a file of problems: "GSM8K.jsonl[:gsm8k]".
        problems: how many of them; 0: all of the file.
        policies: names, and subclasses of `ebb.Scorer` or callables that make one, which decide as `attention` does. A
            pair ("name", scorer) names one whose identity cannot be determined; the name then identifies it.
        budgets: for each policy that takes one: "25%", 1024.
        settings: options of `Engine` and of `Engine.session()` that all policies are run with, a dictionary for each
            setting: {"t0": "50%", "evict": "5%"}, {"kv_type": "q4"}; a `scorer` may be as in `policies`, and a
            `placement` a subclass of `ebb.Placement`.
        seeds: for sampling and for randomized policies; others are run once at temperature 0.
        seed: for pebble's problems, and for the order of a file's options.
        temperature: 0 always takes the likeliest token.
        max_tokens: most tokens of an answer; 0: the task's own limit.
        prompt_preset: the prompt for questions of a file: "plain", or a paper's: "hierarchy", "epikv", "dms",
            "lazy_eviction".
        answer_rules: what counts as the answer in a text: "cascade" ("####", else a phrase, else a box), "last" (the
            one of these that stands last), "boxed" (a box alone); None: as the preset has it.
        prompt_style: "chat", through the model's chat template, or "raw".
        prompt: in place of the preset: called with a `Problem`, returns the user's message, such as a template of your
            own or examples before the question.
        judge: in place of the task's own: called with a `Problem` and the text after the thought (all of it if the
            thought does not end), returns True or False, or "right", "wrong", "no_answer" or "empty", or a pair of such
            and the answer that it found. Called from several threads.
        workers: problems at a time, a thread each; 0: one for each core.
        batch: step so many problems together, a multiple of 4; 0: each by itself.
        out: a folder for grid.json, results.jsonl and times.jsonl, in the format of `ebb-lab eval` and with its bytes.
            Answers are written as they come: Ctrl-C, an exception or a kill loses none that was written.
        resume: continue the run in the folder, which must have the same questions and settings.
        shard: "I/N": the I-th of N parts of the problems, from 0.
        any_version: with resume, continue a run that another version of ebb began.
        progress: draw progress on stderr; None: where that is a terminal.
        on_answer: called with each new answer as it comes.
    """
    pandas = _pandas()
    if not isinstance(model, Model):
        model = Model(model)
    grid = _settings(policies, budgets or ("",), settings, seeds, temperature)
    options = dict(
        task=os.fspath(task), problems=problems, seed=seed, temperature=temperature, top_k=top_k, top_p=top_p,
        min_p=min_p, max_tokens=max_tokens, prompt_preset=prompt_preset, prompt_style=prompt_style,
        workers=workers, batch=batch, resume=resume, shard=shard, any_version=any_version,
        dequantize=model._dequantize,
    )
    if out is not None:
        options["out"] = os.fspath(out)
    if answer_rules is not None:
        if judge is not None:
            raise InvalidArgument("a judge of your own finds the answer itself", field="answer_rules")
        options["answer_rules"] = answer_rules
    if resume and out is None:
        raise InvalidArgument("it needs out, the folder of the run", field="resume")
    if judge is not None:
        options["judge_code"] = identity(judge, "judge").code
    answers: list[dict[str, Any]] = []
    bar = _Progress(progress)

    def on_result(line: str, seconds: float, done: int, total: int, was_there: bool) -> None:
        answer = json.loads(line) | {"seconds": seconds}
        answers.append(answer)
        bar.update(done, total, was_there)
        if on_answer is not None and not was_there:
            on_answer(answer)

    try:
        _ebb.evaluate(model._core, grid, options, on_result,
                      lambda note: warnings.warn(note, stacklevel=2), prompt and _prompt(callable_of(prompt)),
                      judge and _judge(callable_of(judge)))
    finally:
        bar.end()
    return pandas.DataFrame(answers)


def judge(text: str, reference: str, kind: str = "number", options: Sequence[str] = (), *,
          rules: str = "cascade") -> Verdict:
    """Judges any text as `ebb-lab eval` judges answers.

        ebb.judge("3 + 4 = 7, so the answer is 7.", "7").correct

    Args:
        text: a model's text; the part after "</think>" is judged, or all of it if nothing follows that tag.
        reference: the right answer.
        kind: "number" (GSM8K, AIME), "formula" (MATH: by value, with math-verify), "option" (a letter) or "word".
        options: of kind "option": the texts of A, B, ...
        rules: as `answer_rules` of `eval()`.
    """
    if kind == "formula":
        from .verdicts import verdict

        return Verdict(**verdict(text, reference))
    outcome, extracted, rule = _ebb.judge(text, reference, kind, list(options), rules)
    return Verdict(outcome == "right", outcome, extracted, rule)


class Verdict(NamedTuple):
    """The result of a judge.

    Attributes:
        correct: whether the answer is right.
        outcome: "right", "wrong", "no_answer" or "empty".
        extracted: the answer that was found in the text.
        rule: which rule found it: "boxed", "phrase", "last_number", ...; "math_verify".
    """

    correct: bool
    outcome: str
    extracted: str
    rule: str


def summarize(answers: pandas.DataFrame, *, against: str = "") -> pandas.DataFrame:
    """One row for each setting, seeds put together, with the figures of `python3 -m ebb.report summary`: `accuracy`
    with the 95 % interval of Clopper and Pearson (`low`, `high`), `won` and `lost` against the full cache with the
    exact p of McNemar's test (`p`, and `p_holm` with Holm's correction over the table), and means of the cache's
    tokens, bytes and reads over the answers that began.

    against: also test against this setting, named as in the column `setting`; adds `won_against`, `lost_against`,
        `p_against` and `p_against_holm`.
    """
    pandas = _pandas()

    from .runs import SETTING
    from .summary import setting_name, summarize_run

    if len(answers) == 0:
        raise InvalidArgument("there are no answers")
    lines = [{key: value for key, value in line.items() if value is not None and value == value}
             for line in answers.to_dict("records")]
    seconds: dict[tuple[Any, ...], float] = {}
    for line in lines:
        key = tuple(line[name] for name in SETTING)
        seconds[key] = seconds.get(key, 0.0) + line.get("seconds", 0.0)
    records = summarize_run(lines, against)
    renamed = dict(n="problems", correct="right", ci_low="low", ci_high="high", won_full="won", lost_full="lost",
                   p_full="p", p_full_holm="p_holm")
    left_out = ("budget_of", "against")
    return pandas.DataFrame([
        {"setting": setting_name(record, records)}
        | {renamed.get(key, key): value for key, value in record.items() if key not in left_out}
        | {"seconds": seconds[tuple(record[name] for name in SETTING)]}
        for record in records])


def _pandas() -> Any:
    try:
        import pandas
    except ImportError:
        raise NotFound("evaluations need pandas and scipy: pip install './python[lab]' in a checkout of ebb") from None
    return pandas
