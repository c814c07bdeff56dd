"""The page of one evaluation: accuracy against budgets and costs, and every setting in a table."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Callable, Sequence

from .charts import (DASHES, GREY, PALETTE, SHAPES, Axis, Chart, Series, figures, legend, number, page, paragraph,
                     percent, short, table)
from .fronts import front, options_in_name, series_name
from .report import margin_header, margin_rows
from .runs import Json, is_full_cache

Cost = Callable[[Json], "float | None"]

_UNITS = {"B": 1, "bytes": 1, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
          "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def _bytes(value: float) -> str:
    unit = max((name for name in _UNITS if value % _UNITS[name] == 0), key=_UNITS.__getitem__)
    return f"{number(value / _UNITS[unit], 6)} {unit}"


@dataclass(frozen=True)
class _Budget:
    """A way to write budgets, which has a chart of its own."""

    title: str
    axis: str
    pattern: str
    value: Callable[..., float] = float
    text: Callable[[float], str] = lambda value: number(value, 6)
    log: bool = False
    note: str = ""

    def of(self, record: Json) -> float | None:
        match = re.fullmatch(self.pattern, record["budget"])
        return self.value(*match.groups()) if match else None


_BUDGETS = (
    _Budget("in percent", "budget (%)", r"([0-9.]+)%"),
    _Budget("in rows", "budget (rows)", r"([0-9]+)(?: rows)?", log=True, note="Of each layer and kv head."),
    _Budget("in rows beyond the protected", "budget (rows beyond the protected)", r"\+([0-9]+)(?: rows)?",
            text=lambda value: f"+{number(value, 6)}", log=True, note="Of each layer and kv head."),
    _Budget("as a share of the context", "budget (share)", r"1/([0-9.]+)", lambda text: 1 / float(text),
            lambda value: f"1/{number(1 / value)}", log=True, note="Of the prompt and the longest answer together."),
    _Budget("in bytes", "budget (bytes)", rf"([0-9]+) ?({'|'.join(sorted(_UNITS, key=len, reverse=True))})",
            lambda text, unit: float(text) * _UNITS[unit], _bytes, log=True, note="Of all layers together."),
)


def _evicted(record: Json) -> float | None:
    match = re.search(r"(?:^| )evict=([0-9.]+)%", record["tiers"])
    return float(match[1]) if match else None


def _counted(record: Json) -> str:
    """"9 loops, 10 no answer"."""
    kinds = (("errors", "error", "errors"), ("loops", "loop", "loops"), ("truncated", "cut", "cut"),
             ("no_answer", "no\u00a0answer", "no\u00a0answer"), ("empty", "empty", "empty"))
    return ", ".join(f"{record[key]}\u00a0{one if record[key] == 1 else many}"
                     for key, one, many in kinds if record[key])


def _interval(record: Json) -> str:
    return f"{100 * record['ci_low']:.1f} – {100 * record['ci_high']:.1f}"


class _Page:
    def __init__(self, summary: Sequence[Json]):
        self.summary = summary
        self.names = list(dict.fromkeys(series_name(record, summary) for record in summary))

    def shares(self) -> str:
        """What a budget in percent is a share of: it depends on the policy."""
        policies: dict[str, list[str]] = {}
        for record in self.summary:
            of = policies.setdefault(record.get("budget_of") or "", [])
            if record["policy"] not in of:
                of.append(record["policy"])
        policies.pop("", None)
        return " ".join(f"{', '.join(names)}: of {of}." for of, names in policies.items())

    def label(self, record: Json) -> str:
        parts = record["policy"], record["budget"], record["tiers"], options_in_name(record, self.summary)
        return " ".join(filter(None, parts))

    def series(self, name: str, x_of: Cost, line: bool) -> Series:
        points = [(x_of(record), record) for record in self.summary if series_name(record, self.summary) == name]
        known = sorted(((x, record) for x, record in points if x is not None), key=lambda point: point[0])
        i = self.names.index(name)
        tips = ["\n".join(filter(None, (self.label(record), f"{percent(record['accuracy'])} ({_interval(record)})",
                                        _counted(record)))) for _, record in known]
        return Series(name, [x for x, _ in known], [100 * record["accuracy"] for _, record in known],
                      PALETTE[i % len(PALETTE)], line=line, dash=DASHES[i // len(PALETTE) % len(DASHES)],
                      shape=SHAPES[i % len(SHAPES)], tips=tips,
                      whiskers=[(100 * record["ci_low"], 100 * record["ci_high"]) for _, record in known])

    def against_budget(self, title: str, axis: str, x_of: Cost, text: Callable[[float], str], log: bool,
                       note: str) -> Chart | None:
        series = [one for one in (self.series(name, x_of, True) for name in self.names) if one.x]
        values = sorted({x for one in series for x in one.x})
        if len(values) < 2:
            return None
        log = log and values[-1] >= 8 * values[0]
        room = (values[-1] / values[0]) ** 0.15 if log else 0.15 * (values[-1] - values[0])
        low, high = ((values[0] / room, values[-1] * room) if log else (values[0] - room, values[-1] + room))
        full = list(filter(is_full_cache, self.summary))
        if full:
            note = f"{note} Dashed: the full cache.".strip()
            accuracy = 100 * full[0]["accuracy"]
            series.append(Series("full cache", [low, high], [accuracy] * 2, GREY, dash="4 4", silent=True))
        ticks = [(value, text(value)) for value in values]
        x = Axis(axis + (", log scale" if log else ""), low, high, log, ticks)
        return Chart(f"Accuracy against {title}", note, x, _ACCURACY, series, spread="series")

    def against_cost(self, title: str, axis: str, x_of: Cost, caption: str) -> Chart | None:
        known = [(x_of(record), 100 * record["accuracy"]) for record in self.summary if x_of(record) is not None]
        if len(known) < 2:
            return None
        series = [one for one in (self.series(name, x_of, False) for name in self.names) if one.x]
        best = front(known)
        series.insert(0, Series("Pareto front", *zip(*best), colour=GREY, step=True, silent=True))
        return Chart(f"Accuracy against {title}", f"{caption} Grey: the Pareto front.", Axis(axis, 0, format=short),
                     _ACCURACY, series, spread="equal")

    def charts(self) -> list[Chart]:
        charts = [self.against_budget(f"budget {one.title}", one.axis, one.of, one.text, one.log,
                                      one.note or self.shares()) for one in _BUDGETS]
        charts += [
            self.against_budget("the evicted share", "evicted (% of unprotected rows)", _evicted,
                                lambda value: number(value, 6), False, "By the tiers."),
            self.against_cost("peak rows", "peak rows (tokens)", lambda record: record["peak_tokens"],
                              "The most rows that the cache held, mean over answers."),
            self.against_cost("reads", "rows read", lambda record: record["kv_reads"],
                              "Rows attended to over a whole answer, mean over answers."),
            self.against_cost("time", "seconds", lambda record: record["seconds"],
                              "Mean seconds of an answer; several that run at once slow each other down."),
        ]
        return [chart for chart in charts if chart is not None]

    def table(self) -> str:
        most = max((record["peak_kv_bytes"] or 0 for record in self.summary), default=0)
        unit, size = ("KiB", 2**10) if most < 10 * 2**20 else ("MiB", 2**20)

        def optional(key: str, form: Callable[[float], str]) -> Callable[[Json], str]:
            return lambda record: "–" if record.get(key) is None else form(record[key])

        def pair(suffix: str) -> Callable[[Json], str]:
            return lambda record: ("–" if record.get(f"won_{suffix}") is None
                                   else f"{record[f'won_{suffix}']}:{record[f'lost_{suffix}']}")

        def probability(value: float) -> str:
            return f"{value:.1e}" if value < 1e-3 else number(value, 2)

        against = next((record["against"] for record in self.summary if "against" in record), "")
        columns: list[tuple[str, Callable[[Json], str]]] = [
            ("setting", self.label),
            ("right", lambda record: f"{record['correct']}/{record['n']}"),
            ("accuracy", optional("accuracy", percent)), ("95 % interval", _interval),
            ("standard error", optional("standard_error", percent)), ("failed", _counted),
            ("majority", optional("majority", percent)), ("any right", optional("pass_all", percent)),
            ("retention", optional("retention", lambda value: f"{value:.2f}")),
            ("won:lost", pair("full")), ("p", optional("p_full", probability)),
            ("p (Holm)", optional("p_full_holm", probability)),
            (f"won:lost against {against}", pair("against")),
            (f"p against {against}", optional("p_against", probability)),
            (f"p against {against} (Holm)", optional("p_against_holm", probability)),
            ("tokens", optional("generated_tokens", number)), ("peak rows", optional("peak_tokens", number)),
            (f"peak {unit}", optional("peak_kv_bytes", lambda value: number(value / size))),
            ("reads", optional("kv_reads", short)), ("seconds", optional("seconds", number)),
            ("tokens/s", optional("tokens_per_s", number)), ("overhead", optional("overhead", percent)),
        ]
        texts = [(name, [of(record) for record in self.summary]) for name, of in columns]
        filled = [(name, cells) for name, cells in texts if set(cells) - {"", "–"}]
        return table([name for name, _ in filled], zip(*(cells for _, cells in filled)), words=("failed",))


_ACCURACY = Axis("accuracy (%)", 0, 100)


def _sampling(run: Json) -> str:
    if run.get("temperature", 0) == 0:
        return "greedy"
    cuts = ", ".join(f"{name} {number(run.get(key))}" for name, key in
                     (("top-k", "top_k"), ("top-p", "top_p"), ("min-p", "min_p")))
    return f"temperature {number(run['temperature'])}, {cuts}"


def _machines(run: Json) -> str:
    """"ebb 0.2.0 (e1f7a1aa598a), AMD EPYC, cpu:AVX2, 2 threads, 2026-11-30", for each machine."""
    return "; ".join(
        f"ebb {one.get('version', '')} ({one.get('commit', '')}), {one.get('cpu', '')}, {one.get('instructions', '')}, "
        f"{one.get('threads', '')} threads, {one.get('date', '')[:10]}" for one in run["made_by"])


def eval_page(run: Json, summary: Sequence[Json], margins: Sequence[Json], notes: Sequence[str] = ()) -> str:
    """One HTML file. `run`: grid.json; `summary`: summary.json, with the fields of `runs.add_times`; `notes`:
    sentences of `runs.gaps`."""
    of = _Page(summary)
    errors = sum(record["errors"] for record in summary)
    answers = sum(record["n"] for record in summary)
    charts = of.charts()
    parts = [
        paragraph(f"{run.get('task', '')}, {number(run['problems'], 6)} problems, seed {run.get('seed', 0)}; "
                  f"{run.get('model', '')}"),
        paragraph(f"{_sampling(run)}, rows in {run.get('kv_type', 'f16')}"),
        paragraph(_machines(run)) if run.get("made_by") else "",
        paragraph(f"{errors} of {answers} answers ended by an error.", "bad") if errors else "",
        *(paragraph(note, "bad") for note in notes),
    ]
    if charts:
        # A line of the full cache and a front are no series of the legend.
        named = [of.series(name, lambda record: record["accuracy"], True) for name in of.names]
        parts += ["<h2>Accuracy and cost</h2>",
                  paragraph("By policy, with 95 % intervals. Points that would hide each other stand side by side; a "
                            "name hides and shows its series."),
                  legend(named), figures(charts)]
    parts += ["<h2>Every setting</h2>", of.table()]
    if margins:
        parts += ["<h2>Margins between fronts</h2>",
                  paragraph("The mean distance, in points of accuracy, of two Pareto fronts over the costs that both "
                            "span."),
                  table(margin_header(margins), margin_rows(margins))]
    footer = ("Intervals are exact (Clopper-Pearson, 95 %). won:lost counts the problems that a setting alone or the full "
              "cache alone solved, and p is McNemar's exact test of them, with Holm's correction over the table. Rows are "
              "means over layers and kv heads; reads are the rows attended to in decode steps.")
    if any(map(_counted, summary)):
        footer += (" Failed: ended by an error, in a loop or cut at the limit; without an answer, or empty. One answer "
                   "may be in two counts.")
    return page("ebb-lab eval", parts, footer, {"run": run, "settings": list(summary)}, "ebb-eval.json")
