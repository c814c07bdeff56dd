"""The summary of a run of `ebb-lab eval`: a record for each setting, with exact intervals and tests (scipy).

Settings answer the same problems, so that they are compared by McNemar's test of the problems that one of them alone
solved."""

from __future__ import annotations

import math
import re
from typing import Any, Iterable, Sequence

from .errors import InvalidArgument
from .fronts import CONFIDENCE, votes
from .policy_facts import percent_base_of
from .runs import SETTING, Json, is_full_cache, keeps_every_row


def interval(right: int, number: int) -> tuple[float, float]:
    """The exact interval of Clopper and Pearson for a proportion."""
    if number == 0:
        return 0.0, 1.0
    from scipy.stats import binomtest

    exact = binomtest(right, number).proportion_ci(CONFIDENCE, method="exact")
    return float(exact.low), float(exact.high)


def fisher_p(a: Json, b: Json) -> float:
    """Fisher's exact p that two settings are right equally often, on different problems."""
    from scipy.stats import fisher_exact

    table = [[one["correct"], one["n"] - one["correct"]] for one in (a, b)]
    return min(float(fisher_exact(table).pvalue), 1.0)


def mcnemar_p(won: int, lost: int) -> float:
    """McNemar's exact p that two settings answer the same problems equally well, by the answers in which they differ."""
    if won + lost == 0:
        return 1.0
    from scipy.stats import binomtest

    return float(binomtest(won, won + lost).pvalue)


def holm(ps: Sequence[float | None]) -> list[float | None]:
    """Holm's correction of the p-values of one table, in their order; None stays None."""
    known = sorted((p, i) for i, p in enumerate(ps) if p is not None)
    corrected: list[float | None] = [None] * len(ps)
    most = 0.0
    for rank, (p, i) in enumerate(known):
        most = max(most, min(1.0, (len(known) - rank) * p))
        corrected[i] = most
    return corrected


def _pairs(answers: Sequence[Json], others: Sequence[Json]) -> list[tuple[bool, bool]]:
    """Pairs each answer of the first setting with the second setting's answer to the same problem with the same seed, or
    with the second setting's only seed. Returns for each pair whether each of the two is right; omits other answers."""
    by_seed = {(other["problem"], other["seed"]): other["correct"] for other in others}
    seeds = {other["seed"] for other in others}
    only = next(iter(seeds)) if len(seeds) == 1 else None
    pairs = []
    for answer in answers:
        partner = by_seed.get((answer["problem"], answer["seed"]), by_seed.get((answer["problem"], only)))
        if partner is not None:
            pairs.append((answer["correct"], partner))
    return pairs


def compared(answers: Sequence[Json], others: Sequence[Json]) -> Json:
    """Compares a setting with another one: counts `won` and `lost` problems with McNemar's p. If the two answered no
    problem in common, both are None and p is Fisher's."""
    pairs = _pairs(answers, others)
    if not pairs:
        counts = [dict(correct=sum(one["correct"] for one in of), n=len(of)) for of in (answers, others)]
        return dict(won=None, lost=None, p=fisher_p(*counts))
    won = sum(a and not b for a, b in pairs)
    lost = sum(b and not a for a, b in pairs)
    return dict(won=won, lost=lost, p=mcnemar_p(won, lost))


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
    return percent_base_of(name) or None


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
        retention=None, won_full=None, lost_full=None, p_full=None, p_full_holm=None,
        empty=count(outcome="empty"), no_answer=count(outcome="no_answer"),
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
    full = next(filter(is_full_cache, summary), None) or next(filter(keeps_every_row, summary), None)
    if full:
        for record in summary:
            record["retention"] = record["accuracy"] / full["accuracy"] if full["correct"] else None
        _compare(summary, groups, full, "full")
    if against:
        named = {setting_name(record, summary): record for record in summary}
        if against not in named:
            raise InvalidArgument(f'--against "{against}": unknown setting; valid: {", ".join(named)}')
        for record in summary:
            record["against"] = against
        _compare(summary, groups, named[against], "against")
    return summary


def _compare(summary: Sequence[Json], groups: dict[tuple[str, ...], list[Json]], with_: Json, suffix: str) -> None:
    """Adds how each setting compares with one of them, with Holm's correction over the others."""
    def answers_of(record: Json) -> list[Json]:
        return groups[tuple(record[name] for name in SETTING)]

    for record in summary:
        found = compared(answers_of(record), answers_of(with_)) if record is not with_ else dict.fromkeys(
            ("won", "lost", "p"))
        record |= {f"{name}_{suffix}": value for name, value in found.items()}
    for record, p in zip(summary, holm([record[f"p_{suffix}"] for record in summary])):
        record[f"p_{suffix}_holm"] = p


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

    def comparison(record: Json, suffix: str) -> list[str]:
        won = record[f"won_{suffix}"]
        return ["-" if won is None else f"{won}:{record[f'lost_{suffix}']}", optional(record[f"p_{suffix}"], ".2g"),
                optional(record[f"p_{suffix}_holm"], ".2g")]

    header = ["setting", "right", "accuracy (95 %)", "retention", "won:lost", "p", "p (Holm)",
              *([f"won:lost against {against}", "p", "p (Holm)"] if against else []),
              "tokens", "peak rows", "no answer", "cut", "loops", "errors"]
    rows = [[
        setting_name(r, summary), f"{r['correct']}/{r['n']}",
        f"{100 * r['accuracy']:.1f} % ({100 * r['ci_low']:.1f} - {100 * r['ci_high']:.1f})",
        optional(r["retention"], ".2f"), *comparison(r, "full"), *(comparison(r, "against") if against else []),
        optional(r["generated_tokens"], ".0f"),
        optional(r["peak_tokens"], ".0f"), str(r["no_answer"] + r["empty"]), str(r["truncated"]), str(r["loops"]),
        str(r["errors"])] for r in summary]
    return header, rows
