"""The summary of a run of `ebb-lab eval`: a record for each setting, with exact intervals and tests (scipy)."""

from __future__ import annotations

import math
import re
from typing import Any, Iterable, Sequence

from . import _ebb
from .errors import InvalidArgument
from .fronts import CONFIDENCE, votes
from .runs import SETTING, Json, is_full_cache


def interval(right: int, number: int) -> tuple[float, float]:
    """The exact interval of Clopper and Pearson for a proportion."""
    if number == 0:
        return 0.0, 1.0
    from scipy.stats import binomtest

    exact = binomtest(right, number).proportion_ci(CONFIDENCE, method="exact")
    return float(exact.low), float(exact.high)


def fisher_p(a: Json, b: Json) -> float:
    """Fisher's exact p that two settings are right equally often."""
    from scipy.stats import fisher_exact

    table = [[one["correct"], one["n"] - one["correct"]] for one in (a, b)]
    return min(float(fisher_exact(table).pvalue), 1.0)


def correlation_interval(r: float, samples: int) -> tuple[float, float]:
    """The interval of a correlation in Fisher's z = atanh(r), in r; everything for three samples or fewer."""
    if samples <= 3:
        return -1.0, 1.0
    from scipy.stats import norm

    half_width = norm.ppf((1 + CONFIDENCE) / 2) / math.sqrt(samples - 3)
    z = math.atanh(r) if abs(r) < 1 else math.copysign(math.inf, r)
    return math.tanh(z - half_width), math.tanh(z + half_width)


def _budget_of(policy: str, budget: str) -> str | None:
    """The number that a budget in percent is a share of."""
    if not budget.endswith("%"):
        return None
    name = re.split("[:+]", policy.removeprefix("windowed:"))[0]
    return next((info["percent_of"] or None for info in _ebb.policies() if info["name"] == name), None)


def _record(setting: Sequence[str], answers: Sequence[Json]) -> Json:
    number, right = len(answers), sum(answer["correct"] for answer in answers)
    low, high = interval(right, number)
    share = right / number
    begun = sum(answer["peak_tokens"] > 0 for answer in answers)  # a refused request cost nothing

    def cost(name: str) -> float | None:
        return sum(answer.get(name, 0) for answer in answers) / begun if begun else None

    def count(**fields: str) -> int:
        return sum(all(answer.get(name) == value for name, value in fields.items()) for answer in answers)

    policy, budget, tiers, options = setting
    record = dict(
        policy=policy, budget=budget, budget_of=_budget_of(policy, budget), tiers=tiers, options=options, n=number,
        correct=right, accuracy=share, ci_low=low, ci_high=high,
        standard_error=math.sqrt(share * (1 - share) / (number - 1)) if number > 1 else None,
        retention=None, p_full=None, empty=count(outcome="empty"), no_answer=count(outcome="no_answer"),
        truncated=count(finish_reason="length"), loops=count(finish_reason="loop"),
        errors=sum("error" in answer for answer in answers),
        **{name: cost(name) for name in ("generated_tokens", "peak_tokens", "peak_kv_bytes", "kv_reads")})
    samples = len({answer["seed"] for answer in answers})
    if samples > 1:
        of_problem: dict[int, list[Json]] = {}
        for answer in answers:
            of_problem.setdefault(answer["problem"], []).append(answer)
        counted = [votes(group) for group in of_problem.values()]
        record |= dict(samples=samples, majority=sum(majority for majority, _ in counted) / len(counted),
                       pass_all=sum(any_right for _, any_right in counted) / len(counted))
    return record


def summarize_run(results: Iterable[Json], against: str = "") -> list[Json]:
    """A record per setting, seeds put together, in the order of the answers. docs/dev/formats.md has the fields.

    against: a setting as `setting_name()` calls it, against which every setting is tested too.
    """
    groups: dict[tuple[str, ...], list[Json]] = {}
    for line in results:
        groups.setdefault(tuple(line[name] for name in SETTING), []).append(line)
    summary = [_record(setting, answers) for setting, answers in groups.items()]
    full = next(filter(is_full_cache, summary), None)
    for record in summary if full else []:
        record["retention"] = record["accuracy"] / full["accuracy"] if full["correct"] else None
        record["p_full"] = fisher_p(record, full)
    if against:
        named = {setting_name(record, summary): record for record in summary}
        if against not in named:
            raise InvalidArgument(f'--against "{against}": unknown setting; valid: {", ".join(named)}')
        for record in summary:
            record |= dict(against=against, p_against=fisher_p(record, named[against]))
    return summary


def setting_name(record: Json, summary: Sequence[Json]) -> str:
    """Policy, budget and tiers; options too, where another setting differs in these alone."""
    same = [other for other in summary if all(record[name] == other[name] for name in SETTING[:3])]
    options = record["options"] if any(other["options"] != record["options"] for other in same) else ""
    return " ".join(filter(None, (record["policy"], record["budget"], record["tiers"], options)))


def summary_rows(summary: Sequence[Json]) -> tuple[list[str], list[list[str]]]:
    """The header and the rows of summary.md."""

    def optional(value: Any, form: str) -> str:
        return "-" if value is None else format(value, form)

    against = summary[0].get("against", "") if summary else ""
    header = ["setting", "right", "accuracy (95 %)", "retention", "p",
              *([f"p against {against}"] if against else []),
              "tokens", "peak rows", "no answer", "cut", "loops", "errors"]
    rows = [[
        setting_name(r, summary), f"{r['correct']}/{r['n']}",
        f"{100 * r['accuracy']:.1f} % ({100 * r['ci_low']:.1f} - {100 * r['ci_high']:.1f})",
        optional(r["retention"], ".2f"), optional(r["p_full"], ".2g"),
        *([f"{r['p_against']:.2g}"] if against else []), optional(r["generated_tokens"], ".0f"),
        optional(r["peak_tokens"], ".0f"), str(r["no_answer"] + r["empty"]), str(r["truncated"]), str(r["loops"]),
        str(r["errors"])] for r in summary]
    return header, rows
