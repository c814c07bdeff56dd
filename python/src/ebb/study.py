"""Studies other than evaluations: the distance of a setting from the full cache, and the tokens that matter."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Sequence

from . import _ebb
from .engine import Model, engine_for
from .errors import InvalidArgument, NotFound
from .options import ModelSessionOptions

if TYPE_CHECKING:
    import pandas
    from typing_extensions import Unpack


class Estimate(NamedTuple):
    """A mean with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Fidelity:
    """How far a setting's next-token distributions are from the full cache's.

    Attributes:
        mean_kl: KL(full || setting) in nats, mean over the decode steps.
        max_kl, max_logit_difference: the largest of any step.
        top1: the share of steps in which both hold the same token likeliest.
        perplexity, perplexity_full: of the text, under the setting and under the full cache.
        tokens: decode steps that were compared; not_finite: of them, left out of the means.
        windows: into which the text was cut.
        kv_bytes: of the pages of the setting's rows, mean over the steps.
        policy_bytes: of the policy's state, at most.
    """

    mean_kl: Estimate
    max_kl: float
    max_logit_difference: float
    top1: Estimate
    perplexity: Estimate
    perplexity_full: Estimate
    tokens: int
    not_finite: int
    windows: int
    kv_bytes: float
    policy_bytes: int


def fidelity(
    model: Model | str,
    text: str | Sequence[int],
    *,
    window_tokens: int = 2048,
    prompt_tokens: int = 64,
    windows: int = 0,
    **options: Unpack[ModelSessionOptions],
) -> Fidelity:
    """Compares a setting with the full cache on given text, as `ebb-lab fidelity` does.

        ebb.fidelity(model, text, policy="attention", budget="25%").mean_kl

    Args:
        text: text or tokens; special tokens in it are read as text.
        window_tokens: the text is cut into windows of so many tokens.
        prompt_tokens: of each window, read at once; each later token is a decode step, which is compared.
        windows: how many, from the first; 0: all.
        options: those of `Model.session()`: the setting. Its `seed` is that of the intervals' bootstrap too.
    """
    if not isinstance(model, Model):
        model = Model(model)
    tokens = model.tokenize(text, add_bos=False, specials=False) if isinstance(text, str) else [int(t) for t in text]
    engine, session = engine_for(model, dict(options))
    found = _ebb.fidelity(engine._core, tokens, session, window_tokens, prompt_tokens, windows,
                          options.get("seed", 0))
    return Fidelity(**{key: Estimate(*value) if isinstance(value, tuple) else value for key, value in found.items()})


class Importance(NamedTuple):
    """The result of `importance()`.

    Attributes:
        labels: a row for each problem: `outcome` ("labelled"; "wrong", "no thought" or "not repeated"), and where it is
            labelled `tokens` up to the `boundary`, `important` (a 0 or 1 for each), `thought_begin` and the `windows`.
        signals: a row for each signal and scorer, with its rank correlations with the labels: `within` a thought with
            the `half_width` of its 95 % interval, `pooled` over all tokens, and `trend` with the position.
    """

    labels: pandas.DataFrame
    signals: pandas.DataFrame


def importance(
    model: Model | str = "pebble",
    *,
    task: str | os.PathLike[str] = "pebble",
    problems: int = 20,
    seed: int = 0,
    prompt_preset: str = "plain",
    max_tokens: int = 0,
    window: int = 32,
    stride: int = 16,
    answer_tokens: int = 512,
    boundary: str = "",
    workers: int = 0,
    kv_type: str = "f16",
) -> Importance:
    """Labels the tokens of right answers by occlusion, and measures how well each signal ranks them, as `ebb-lab
    importance` does.

    Args:
        task, problems, seed, prompt_preset, max_tokens: as of `eval()`.
        window: tokens that are replaced together.
        stride: tokens from one such window to the next.
        answer_tokens: most tokens that are generated after each occluded thought.
        boundary: the thought ends after the last place where the model wrote this; "": the thinking tag.
        workers: problems at a time; 0: one for each core.
    """
    from .lab import _pandas

    pandas = _pandas()
    if not isinstance(model, Model):
        model = Model(model)
    options: dict[str, Any] = dict(
        task=os.fspath(task), problems=problems, seed=seed, prompt_preset=prompt_preset, max_tokens=max_tokens,
        window=window, stride=stride, answer_tokens=answer_tokens, boundary=boundary, workers=workers, kv_type=kv_type)
    labels, signals = _ebb.importance(model._core, options)
    return Importance(pandas.DataFrame(labels), pandas.DataFrame(signals))


def profile(
    model: Model,
    prompt: str,
    *,
    max_tokens: int = -1,
    transfer_tokens: int = 1024,
    **options: Unpack[ModelSessionOptions],
) -> dict[str, Any]:
    """Measures the attention to rows, the tiers of rows and the cost of moves while a prompt is answered: the record of
    `ebb-lab profile --json`, by that program (on the PATH, or at EBB_PROGRAM with "-lab" appended).

    docs/dev/formats.md has the fields, and `ebb.profile_page.profile_page(record)` draws them.

    Args:
        max_tokens: of the answer; -1: until it ends.
        transfer_tokens: most tokens that are moved between tiers to measure how long that takes; 0: none.
        options: those of `Model.session()`, but for policies in Python.
    """
    program = shutil.which(os.environ.get("EBB_PROGRAM", "ebb") + "-lab")
    if program is None:
        raise NotFound("profiles need the program ebb-lab on the PATH")
    command = [program, "profile", "--json", "--quiet", "-m", model.path, "-p", prompt, "-n", str(max_tokens),
               "--transfer-tokens", str(transfer_tokens)]
    for name, value in options.items():
        if value is None or value is False or name == "ledger":
            continue
        if not isinstance(value, (str, int)):
            raise InvalidArgument("a profile takes built-in policies alone", field=name)
        command += [f"--{name.replace('_', '-')}"] + ([] if value is True else [str(value)])
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          check=False)
    if done.returncode != 0:
        raise InvalidArgument(done.stderr.strip())
    return dict(json.loads(done.stdout))
