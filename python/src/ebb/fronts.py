"""Figures over several runs of `ebb-lab eval`: points, Pareto fronts, and how far fronts lie apart ("Inference-Time
Hyper-Scaling", 5.1 and App. E). docs/user/evaluation.md defines them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any, Iterable, Iterator, Sequence

import numpy as np

from .errors import InvalidArgument, NotFound
from .policy_facts import scorer_of
from .verdicts import same_formula
from .runs import Json, Run, differing_key, whole_runs

Point = tuple[float, float]  # cost, score

SCORES = ("majority", "pass_all")
COSTS = ("kv_reads", "peak_tokens")
CONFIDENCE = 0.95
_DIFFER_IN_FRONTS = ("model", "model_fingerprint", "model_compression", "model_window", "model_shift",
                     "answer_tokens", "tokens", "context", "settings")


# Settings and methods


@dataclass(frozen=True)
class ModelIdentity:
    fingerprint: int
    description: str
    compression: float
    window: int
    shift: int

    @classmethod
    def of(cls, manifest: Json) -> ModelIdentity:
        return cls(manifest.get("model_fingerprint", 0), manifest.get("model", ""),
                   manifest.get("model_compression", 0), manifest.get("model_window", 0),
                   manifest.get("model_shift", 0))

    @property
    def marks_no_rows(self) -> bool:
        return self.compression == 0 and self.window == 0

    @property
    def label(self) -> str:
        return f"model of CR {self.compression:g}" if self.compression > 0 else self.description


@dataclass
class ChainSet:
    """The answers of a model under one setting and token limit, seeds together."""

    model: ModelIdentity
    tokens: int  # 0: not recorded
    policy: str
    budget: str
    tiers: str
    options: str
    seeds: dict[int, dict[int, Json]] = field(default_factory=dict)  # answers by seed and problem
    method: str = ""

    @property
    def of_problem(self) -> list[list[Json]]:
        """[problems][samples], in the order of seeds."""
        seeds = [self.seeds[seed] for seed in sorted(self.seeds)]
        return [[answers[problem] for answers in seeds] for problem in sorted(seeds[0])]

    @property
    def reads_marks(self) -> bool:
        return scorer_of(self.policy) == "dms"

    @property
    def compression(self) -> str:
        """The compression ratio, or the limit of rows that replaces it."""
        if self.policy == "full" and not self.tiers:
            return "1"
        return (split_tiers(self.tiers)[1] or format_budget(self.budget)
                or (f"{self.model.compression:g}" if self.reads_marks and self.model.compression > 0 else self.policy))

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for settings that have one front."""
        model = (self.model.window, self.model.shift) if self.reads_marks else (self.model.fingerprint,)
        return self.policy, split_tiers(self.tiers)[0], self.options, self.reads_marks, model

    @property
    def rank(self) -> int:
        """The full cache comes first, models that mark rows last."""
        if self.reads_marks:
            return 3
        return 2 if self.policy != "full" or self.tiers else 0 if self.model.marks_no_rows else 1


def split_tiers(tiers: str) -> tuple[str, str]:
    """"t0=50% evict=5% of alive" as ("t0=50% of alive", "evict=5%")."""
    evicted = re.search(r"evict=[^ ]*", tiers)
    if evicted is None:
        return tiers, ""
    rest = tiers[: max(evicted.start() - 1, 0)] + tiers[evicted.end() :]
    return rest if evicted.start() > 0 else rest.removeprefix(" "), evicted.group()


_BYTES = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4,
          "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "ti": 1 << 40}


def format_budget(text: str) -> str:
    """"25%", "128 rows", "+64 rows", "67108864 bytes"; "8" for "1/8"; "" for text that is no budget."""
    number = r"(\d+(?:\.\d*)?(?:e[+-]?\d+)?)"
    if match := re.fullmatch(number + "%", text):
        return f"{float(match[1]):g}%"
    if match := re.fullmatch("1/" + number, text):
        return f"{float(match[1]):g}"
    if re.fullmatch(r"\+?\d+", text):
        return f"{text[: text.startswith('+')]}{int(text)} rows"
    match = re.fullmatch(number + "([a-z]+)", text.lower())
    unit = _BYTES.get(match[2].removesuffix("b")) if match else None
    return f"{float(match[1]) * unit:.0f} bytes" if match and unit else ""


def _method_names(sets: Sequence[ChainSet]) -> list[str]:
    """A name for each of `sets`, all of different methods: with options, window, shift and model where these
    distinguish methods."""
    models: dict[int, ModelIdentity] = {}
    for one in sets:
        if not one.reads_marks:
            models.setdefault(one.model.fingerprint, one.model)
    base = next((model for model in models.values() if model.marks_no_rows), next(iter(models.values()), None))

    def name_of(one: ChainSet) -> str:
        name = ", ".join(filter(None, one.key[:2]))
        same_policy = [other for other in sets if other.key[:2] == one.key[:2]]
        if any(other.options != one.options for other in same_policy):
            name += ", " + (one.options or "no options")
        marks = (one.model.window, one.model.shift) if one.reads_marks else (0, 0)
        for i, what in enumerate(("window", "shift")):
            others = [other.key[4][i] if other.reads_marks else 0
                      for other in same_policy if other.options == one.options]
            if any(value != marks[i] for value in others):
                name += f", {what} {marks[i]}"
        if one.reads_marks or one.model.fingerprint == base.fingerprint:
            return name
        alike = sum(model.label == one.model.label for model in models.values())
        short = f" {one.model.fingerprint:016x}"[:7] if alike > 1 else ""
        return f"{name}, {one.model.label}{short}"

    return [name_of(one) for one in sets]


def _check_same_problems(runs: Sequence[Run]) -> None:
    for run in runs:
        may_differ = _DIFFER_IN_FRONTS
        if "pebble" not in (runs[0].manifest.get("task"), run.manifest.get("task")):
            may_differ += ("task", "seed")  # the problems of a file do not follow from the seed
        key = differing_key(runs[0].manifest, run.manifest, may_differ)
        if key:
            raise InvalidArgument(f'{runs[0].folder} and {run.folder} have no fronts in common: their "{key}" '
                                  "differs; they are to be of the same problems and sampled alike")


def collect(parts: Iterable[Run]) -> tuple[list[str], list[ChainSet]]:
    """The methods, the full cache first, and the settings of all runs."""
    runs = whole_runs(parts)
    if not runs:
        raise InvalidArgument("expected folders that `ebb-lab eval` wrote")
    _check_same_problems(runs)
    sets: dict[tuple[Any, ...], ChainSet] = {}
    for run in runs:
        model = ModelIdentity.of(run.manifest)
        tokens = run.manifest.get("tokens", 0) or run.manifest.get("answer_tokens", 0)
        for line in run.results:
            setting = [line[name] for name in ("policy", "budget", "tiers", "options")]
            one = sets.setdefault((model.fingerprint, tokens, *setting), ChainSet(model, tokens, *setting))
            answer = {key: value for key, value in line.items() if key != "setting"}
            if one.seeds.setdefault(line["seed"], {}).setdefault(line["problem"], answer) != answer:
                place = " ".join(filter(None, setting[:3]))
                raise InvalidArgument(f"{run.folder}: two answers to problem {line['problem']} of {place}, seed "
                                      f"{line['seed']} differ")
    if not sets:
        raise InvalidArgument("the runs hold no answers")
    methods: dict[tuple[Any, ...], ChainSet] = {}
    for one in sets.values():
        methods.setdefault(one.key, one)
    names = dict(zip(methods, _method_names(list(methods.values()))))
    for one in sets.values():
        one.method = names[one.key]
    order = sorted(methods.values(), key=lambda one: one.rank)
    return [one.method for one in order], list(sets.values())

# Figures


def _same_answer(a: str, b: str) -> bool:
    try:
        return math.isclose(float(a.replace(",", "")), float(b.replace(",", "")), rel_tol=1e-5)
    except ValueError:
        pass
    try:
        return same_formula(a, b) and same_formula(b, a)
    except NotFound:
        return a == b


def votes(answers: Sequence[Json]) -> tuple[bool, bool]:
    """Whether the most frequent answer is right, and whether any is. Right answers count as the same, and so do
    wrong ones that are the same number or, with math-verify, formula; ties go to the answer that sorts first."""
    counts: dict[str, int] = {}
    right: str | None = None
    for answer in answers:
        text = answer["extracted"]
        if answer["correct"]:
            right = text if right is None else right
            counts[right] = counts.get(right, 0) + 1
        elif text:
            same = (other for other in sorted(counts) if other != right and _same_answer(text, other))
            other = next(same, text)
            counts[other] = counts.get(other, 0) + 1
    if right is None:
        return False, False
    return min(counts, key=lambda text: (-counts[text], text)) == right, True


def front(points: Iterable[Point]) -> list[Point]:
    """The points that no other one beats; ascending in cost and in score."""
    kept: list[Point] = []
    for cost, score in sorted(points, key=lambda point: (point[0], -point[1])):
        if not kept or score > kept[-1][1]:
            kept.append((cost, score))
    return kept


def common_costs(a: Sequence[Point], b: Sequence[Point]) -> tuple[float, float] | None:
    """The interval of costs that both fronts span."""
    if not a or not b:
        return None
    low, high = max(a[0][0], b[0][0]), min(a[-1][0], b[-1][0])
    return (low, high) if low < high else None


def margin(a: Sequence[Point], b: Sequence[Point]) -> float | None:
    """The mean of front a's score less front b's over the costs that both span, interpolated linearly."""
    common = common_costs(a, b)
    if common is None:
        return None
    low, high = common
    costs = np.array(sorted({low, high, *(cost for cost, _ in (*a, *b) if low < cost < high)}))
    difference = np.interp(costs, *zip(*a)) - np.interp(costs, *zip(*b))
    return float(np.sum(np.diff(costs) * (difference[1:] + difference[:-1]) / 2) / (high - low))


def _random_numbers(seed: int, number: int) -> np.ndarray:
    """The first outputs of std::mt19937_64, so that a seed gives the intervals of earlier reports."""
    state = [seed]
    for i in range(1, 312):
        state.append((6364136223846793005 * (state[-1] ^ (state[-1] >> 62)) + i) & (2**64 - 1))
    words, blocks = np.array(state, np.uint64), []
    upper = np.uint64(0xFFFFFFFF80000000)
    one = np.uint64(1)

    def twist(first: np.ndarray, second: np.ndarray, third: np.ndarray) -> np.ndarray:
        y = (first & upper) | (second & ~upper)
        return third ^ (y >> one) ^ np.where(y & one, np.uint64(0xB5026F5AA96619E9), np.uint64(0))

    for _ in range(-(-number // 312)):
        low = twist(words[:156], words[1:157], words[156:])
        high = twist(words[156:311], words[157:], low[:155])
        last = twist(words[311:], low[:1], low[155:])
        words = np.concatenate([low, high, last])
        x = words ^ ((words >> np.uint64(29)) & np.uint64(0x5555555555555555))
        x = x ^ ((x << np.uint64(17)) & np.uint64(0x71D67FFFEDA60000))
        x = x ^ ((x << np.uint64(37)) & np.uint64(0xFFF7EEE000000000))
        blocks.append(x ^ (x >> np.uint64(43)))
    return np.concatenate(blocks)[:number] if blocks else np.zeros(0, np.uint64)


def draw_problems(problems: int, resamples: int = 1000, seed: int = 1) -> np.ndarray:
    """How often each problem is drawn, [resamples, problems], with replacement."""
    drawn = _random_numbers(seed, resamples * problems) % np.uint64(problems)
    times = np.zeros((resamples, problems))
    np.add.at(times, (np.repeat(np.arange(resamples), problems), drawn.astype(np.int64)), 1)
    return times


@dataclass
class Sums:
    """Sums and numbers of observations by problem; problems are resampled with all of their answers."""

    sums: np.ndarray
    counts: np.ndarray

    def mean(self) -> float:
        return float(self.means(np.ones((1, len(self.sums))))[0])

    def means(self, draws: np.ndarray) -> np.ndarray:
        """[resamples]; NaN where nothing was observed."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return (draws * self.sums).sum(axis=1) / (draws * self.counts).sum(axis=1)


def _interval(values: Iterable[float]) -> tuple[float, float]:
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return math.nan, math.nan
    tail = 50 * (1 - CONFIDENCE)
    low, high = np.percentile(known, [tail, 100 - tail])
    return float(low), float(high)


@dataclass
class FrontPoint:
    """A point L-W-CR."""

    set: ChainSet
    width: int
    figures: dict[str, Sums]

    @property
    def name(self) -> str:
        return f"{self.set.tokens or 'own'}-{self.width}-{self.set.compression}"


def _point(one: ChainSet, width: int) -> FrontPoint:
    rows = []
    for answers in one.of_problem:
        subsets = [votes(answers[i : i + width]) for i in range(0, len(answers) - width + 1, width)]
        begun = sum(answer["peak_tokens"] > 0 for answer in answers)
        rows.append((*(sum(subset[i] for subset in subsets) for i in range(2)), len(subsets),
                     *(width * sum(answer[cost] for answer in answers) for cost in COSTS), begun))
    majority, any_right, subsets, *costs, begun = np.array(rows, float).T
    figures = {"majority": Sums(majority, subsets), "pass_all": Sums(any_right, subsets)}
    return FrontPoint(one, width, figures | {cost: Sums(sums, begun) for cost, sums in zip(COSTS, costs)})


def _record(point: FrontPoint, draws: np.ndarray) -> Json:
    one = point.set
    record: Json = {
        "name": point.name, "method": one.method, "tokens": one.tokens, "width": point.width,
        "compression": one.compression, "policy": one.policy, "budget": one.budget, "tiers": one.tiers,
        "options": one.options, "model": one.model.description, "model_compression": one.model.compression,
        "samples": len(one.seeds),
    }
    for score in SCORES:
        low, high = _interval(point.figures[score].means(draws))
        record |= {score: point.figures[score].mean(), f"{score}_low": low, f"{score}_high": high}
    return record | {cost: point.figures[cost].mean() for cost in COSTS} | {"on_front": {}}


def _fronts_by_draw(points: Sequence[FrontPoint], score: str, cost: str, draws: np.ndarray) -> Iterator[list[Point]]:
    costs = np.array([point.figures[cost].means(draws) for point in points])
    scores = np.array([point.figures[score].means(draws) for point in points])
    for pair in np.stack([costs, scores]).transpose(2, 1, 0):
        yield front(map(tuple, pair[np.isfinite(pair).all(axis=1)].tolist()))


def _number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def compare(parts: Iterable[Run], *, resamples: int = 1000, seed: int = 1) -> Json:
    """Points and margins of all methods: the content of fronts.json."""
    parts = list(parts)
    names, sets = collect(parts)
    methods: dict[str, list[FrontPoint]] = {}
    left_out = []
    for name in names:
        own = [one for one in sets if one.method == name]
        compressions = list(dict.fromkeys(one.compression for one in own))
        for one in sorted(own, key=lambda one: (compressions.index(one.compression), one.tokens)):
            if not any(answer["peak_tokens"] > 0 for answers in one.of_problem for answer in answers):
                left_out.append(f"{name} {one.compression}")
                continue
            widths = [1 << i for i in range(len(one.seeds).bit_length())]
            methods.setdefault(name, []).extend(_point(one, width) for width in widths)
    if not methods:
        raise InvalidArgument("no request of these runs began: all are errors")
    draws = draw_problems(len(next(iter(methods.values()))[0].set.of_problem), resamples, seed)
    whole = np.ones((1, draws.shape[1]))
    records, margins = [], []
    pairs = [(method, over) for i, over in enumerate(methods) for method in list(methods)[i + 1 :]]
    margins = [{"method": method, "over": over, **{score: {} for score in SCORES}} for method, over in pairs]
    for points in methods.values():
        of_method = [_record(point, draws) for point in points]
        for score in SCORES:
            for cost in COSTS:
                best = front((record[cost], record[score]) for record in of_method)
                for record in of_method:
                    record["on_front"].setdefault(score, {})[cost] = (record[cost], record[score]) in best
        records += of_method
    for score in SCORES:
        for cost in COSTS:
            of_all = {name: next(_fronts_by_draw(points, score, cost, whole)) for name, points in methods.items()}
            drawn: list[list[float]] = [[] for _ in pairs]
            for fronts in zip(*(_fronts_by_draw(points, score, cost, draws) for points in methods.values())):
                by_name = dict(zip(methods, fronts))
                for values, (method, over) in zip(drawn, pairs):
                    value = margin(by_name[method], by_name[over])
                    if value is not None:
                        values.append(value)
            for record, values, (method, over) in zip(margins, drawn, pairs):
                low, high = _interval(values)
                costs = common_costs(of_all[method], of_all[over]) or (None, None)
                record[score][cost] = {
                    "margin": margin(of_all[method], of_all[over]), "low": _number(low), "high": _number(high),
                    "none": 1 - len(values) / resamples, "from": costs[0], "to": costs[1]}
    common = ("task", "problems", "seed", "kv_type", "prompt_preset", "temperature", "top_k", "top_p", "min_p")
    return {
        "run": {key: parts[0].manifest.get(key) for key in common},
        "runs": [{"folder": run.folder, "model": run.manifest.get("model", ""),
                  "model_compression": run.manifest.get("model_compression", 0.0),
                  "tokens": run.manifest.get("tokens", 0)} for run in parts],
        "baseline": next(iter(methods)),
        "bootstrap": {"resamples": resamples, "seed": seed, "confidence": CONFIDENCE},
        "methods": list(methods), "left_out": left_out, "points": records, "margins": margins,
    }


def options_in_name(record: Json, summary: Sequence[Json]) -> str:
    """Returns a setting's options if they alone distinguish it from another setting, else nothing."""
    same = [other for other in summary if all(record[key] == other[key] for key in ("policy", "budget", "tiers"))]
    return record["options"] if any(other["options"] != record["options"] for other in same) else ""


def series_name(record: Json, summary: Sequence[Json]) -> str:
    """Equal for settings that differ in their budget or their evicted share alone."""
    parts = [record["policy"], split_tiers(record["tiers"])[0]]
    options = options_in_name(record, summary)
    return ", ".join(filter(None, parts)) + (f", {options}" if options else "")


def margins_of(summary: Sequence[Json]) -> list[Json]:
    """How far each policy's front of one run (summary.json) lies above that of `random`, or of the first policy."""
    series: dict[str, list[Json]] = {}
    for record in summary:
        of_name = series.setdefault(series_name(record, summary), [])
        if record["kv_reads"] is not None:
            of_name.append(record)
    series = {name: records for name, records in series.items() if len(records) >= 2}
    if len(series) < 2:
        return []
    over = next((name for name, records in series.items() if records[0]["policy"] == "random"), next(iter(series)))

    def of(name: str, cost: str) -> list[Point]:
        return front((record[cost], record["accuracy"]) for record in series[name])

    return [{"series": name, "over": over, **{cost: margin(of(name, cost), of(over, cost)) for cost in COSTS}}
            for name in series if name != over]
