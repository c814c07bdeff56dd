"""Pages and figures of the files that `ebb eval` and `ebb profile` write. Over several evaluations: points, Pareto
fronts, and how far fronts lie apart ("Inference-Time Hyper-Scaling", 5.1 and App. E).

    python3 -m ebb.report eval runs/first
    python3 -m ebb.report margins runs/first
    python3 -m ebb.report fronts runs/plain runs/dms --out runs/fronts
    ebb profile --json -p "The tide" | python3 -m ebb.report profile - --out profile.html

docs/user/evaluation.md defines the figures of evaluations, docs/dev/formats.md those of profiles.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Iterable, Iterator, Sequence

import numpy as np

from . import _ebb, charts
from .errors import Corrupt, Error, InvalidArgument, NotFound

Json = dict[str, Any]
Point = tuple[float, float]  # cost, score

SCORES = ("majority", "pass_all")
COSTS = ("kv_reads", "peak_tokens")
CONFIDENCE = 0.95


# Runs of `ebb eval`


@dataclass
class Run:
    """A folder that `ebb eval` wrote: grid.json and results.jsonl."""

    folder: str
    manifest: Json
    results: list[Json]
    seconds: list[float] = field(default_factory=list)  # of the same answers
    cut: list[str] = field(default_factory=list)  # files whose last line has no end

    @property
    def num_asked(self) -> int:
        """The answers that the grid asks for, of a shard those of its problems."""
        index, count = map(int, self.manifest.get("shard", "0/1").split("/"))
        return len(self.manifest["settings"]) * len(range(index, self.manifest["problems"], count))


_KINDS = {
    "index": lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= 0,
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "text": lambda value: isinstance(value, str),
    "truth": lambda value: isinstance(value, bool),
}
_RESULT_FIELDS = {
    "setting": "index", "problem": "index", "policy": "text", "budget": "text", "tiers": "text",
    "options": "text", "seed": "index", "correct": "truth", "extracted": "text", "peak_tokens": "number",
    "kv_reads": "number",
}
_GRID_FIELDS = {
    "task": "text", "shard": "text", "model": "text", "model_fingerprint": "index", "model_compression": "number",
    "model_window": "number", "model_shift": "number", "tokens": "number", "answer_tokens": "number",
}
#: Fields that grids of older versions lack, and the values that these versions used.
_DEFAULTS = {"top_k": 40, "min_p": float(np.float32(0.05)), "batch": 0, "device": ""}
#: Fields that grids of older versions lack, and that follow from other fields.
_DERIVED = ("model_compression", "model_window", "model_shift", "answer_tokens")
_DIFFER_IN_SHARDS = ("shard", "settings")
_DIFFER_IN_FRONTS = ("model", "model_fingerprint", "model_compression", "model_window", "model_shift",
                     "answer_tokens", "tokens", "context", "settings")


def _parse(text: str, place: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise Corrupt(f"{place}: not JSON") from None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise NotFound(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Corrupt(f"{path}: not UTF-8") from None


def _lines(path: Path, cut: list[str]) -> list[Json]:
    """Lines that end. A kill may have cut the last one, which `--resume` writes again: then the path is put in `cut`."""
    *whole, last = _read(path).split("\n")
    if last:
        cut.append(str(path))
    return [_parse(line, f"{path}, line {number}") for number, line in enumerate(whole, 1)]


def read_run(folder: str | Path) -> Run:
    """Reads and checks a run. Answers without a line in times.jsonl are left out, as `ebb eval` does."""
    path = Path(folder)
    grid = path / "grid.json"
    manifest = _parse(_read(grid), str(grid))
    if not (isinstance(manifest, dict) and isinstance(manifest.get("settings"), list)
            and _KINDS["index"](manifest.get("problems"))):
        raise Corrupt(f"{grid} is no grid of an evaluation")
    for name, kind in _GRID_FIELDS.items():
        if name in manifest and not _KINDS[kind](manifest[name]):
            raise Corrupt(f'{grid}: "{name}" is no such value')
    shard = re.fullmatch(r"(\d+)/(\d+)", manifest.get("shard", "0/1"), re.ASCII)
    if not shard or int(shard[1]) >= int(shard[2]):
        raise Corrupt(f'{grid}: "shard" is no such value')
    cut: list[str] = []
    results = _lines(path / "results.jsonl", cut)
    for number, line in enumerate(results, 1):
        place = f"{path / 'results.jsonl'}, line {number}"
        for name, kind in _RESULT_FIELDS.items():
            if not isinstance(line, dict) or not _KINDS[kind](line.get(name)):
                raise Corrupt(f'{place}: "{name}" is missing, or no such value')
        if line["setting"] >= len(manifest["settings"]) or line["problem"] >= manifest["problems"]:
            raise Corrupt(f"{place}: no answer to this run's grid")
    seconds = []
    for number, line in enumerate(_lines(path / "times.jsonl", cut), 1):
        if not isinstance(line, dict) or not _KINDS["number"](line.get("seconds")):
            raise Corrupt(f'{path / "times.jsonl"}, line {number}: "seconds" is missing, or no such value')
        seconds.append(line["seconds"])
    number = min(len(results), len(seconds))
    return Run(str(folder), {**_DEFAULTS, **manifest}, results[:number], seconds[:number], cut)


_SETTING = ("policy", "budget", "tiers", "options")
_SUMMARY_FIELDS = {**{name: "text" for name in _SETTING}, "accuracy": "number", "ci_low": "number", "ci_high": "number",
                   **{name: "index" for name in ("n", "correct", "errors", "loops", "truncated", "no_answer", "empty")}}
#: Null where no request of a setting began.
_SUMMARY_COSTS = ("generated_tokens", "peak_tokens", "peak_kv_bytes", "kv_reads")


def read_summary(folder: str | Path) -> list[Json]:
    """Reads and checks summary.json of a run that ended."""
    path = Path(folder) / "summary.json"
    summary = _parse(_read(path), str(path))
    if not isinstance(summary, list) or not summary:
        raise Corrupt(f"{path} is no summary of an evaluation")
    for number, record in enumerate(summary, 1):
        if not isinstance(record, dict):
            raise Corrupt(f"{path} is no summary of an evaluation")
        wrong = [name for name, kind in _SUMMARY_FIELDS.items() if not _KINDS[kind](record.get(name))]
        wrong += [name for name in _SUMMARY_COSTS
                  if record.get(name) is not None and not _KINDS["number"](record[name])]
        if wrong:
            raise Corrupt(f'{path}, record {number}: "{wrong[0]}" is missing, or no such value')
    return summary


def gaps(summary: Sequence[Json], run: Run) -> list[str]:
    """Sentences that say what the files of a run lack, with the numbers; none of a whole run."""
    texts = [f"The last line of {Path(path).name} is cut." for path in run.cut]
    there, asked = len(run.results), run.num_asked
    if there < asked:
        texts.append(f"{asked - there} of {asked} answers are missing: the run did not end, or its files were cut; "
                     "`ebb eval --resume` adds them.")
    counted = sum(record["n"] for record in summary)
    if counted != there:
        texts.append(f"summary.json counts {counted} answers, results.jsonl and times.jsonl hold {there}: the times are "
                     "those of the latter.")
    return texts


def add_times(summary: Sequence[Json], run: Run) -> list[Json]:
    """`summary` with the fields that vary between runs, null without times: mean `seconds` of an answer, `tokens_per_s`
    including the time for the prompt, and `overhead` (0.1: a token takes 10 % longer than with the full cache)."""
    spent: dict[tuple[str, ...], list[float]] = {}
    for line, seconds in zip(run.results, run.seconds):
        of_setting = spent.setdefault(tuple(line[name] for name in _SETTING), [0.0, 0.0, 0.0])
        for i, value in enumerate((seconds, line.get("generated_tokens", 0), 1)):
            of_setting[i] += value
    times = {}
    for key, (seconds, tokens, answers) in spent.items():
        times[key] = seconds / answers, tokens / seconds if seconds > 0 else None
    full = next((rate for (policy, budget, tiers, _), (_, rate) in times.items()
                 if policy == "full" and not budget and not tiers), None)
    records = []
    for record in summary:
        mean, rate = times.get(tuple(record[name] for name in _SETTING), (None, None))
        overhead = full / rate - 1 if full and rate else None
        records.append({**record, "seconds": mean, "tokens_per_s": rate, "overhead": overhead})
    return records


def differing_key(a: Json, b: Json, may_differ: Sequence[str] = ()) -> str:
    """The first key in which two manifests differ; "": none. The path of the task may differ."""
    for key in [*a, *b]:
        if key == "task" or key in may_differ:
            continue
        if a[key] != b[key] if key in a and key in b else key not in _DERIVED:
            return key
    return ""


def merge(runs: Sequence[Run]) -> Run:
    """Shards of a run as one run, in the order of settings and problems."""
    settings: list[Json] = []
    answers: dict[tuple[int, int], Json] = {}
    for run in runs:
        key = differing_key(runs[0].manifest, run.manifest, _DIFFER_IN_SHARDS)
        if key:
            raise InvalidArgument(f"{runs[0].folder} and {run.folder} are answers to different questions: "
                                  f'their "{key}" differs')
        settings += [setting for setting in run.manifest["settings"] if setting not in settings]
        places = [settings.index(setting) for setting in run.manifest["settings"]]
        for line in run.results:
            line = {**line, "setting": places[line["setting"]]}
            place = line["setting"], line["problem"]
            if answers.setdefault(place, line) != line:
                raise InvalidArgument(f"two answers to problem {place[1]} of setting {place[0]} differ")
    manifest = {**runs[0].manifest, "shard": "0/1", "settings": settings}
    return Run(runs[0].folder, manifest, [answers[place] for place in sorted(answers)])


def whole_runs(parts: Iterable[Run]) -> list[Run]:
    """Merges shards. Raises InvalidArgument where answers are missing."""
    groups: list[list[Run]] = []
    for part in parts:
        same = [group for group in groups
                if not differing_key(group[0].manifest, part.manifest, _DIFFER_IN_SHARDS)]
        (same[0] if same else groups.append([]) or groups[-1]).append(part)
    runs = [merge(group) for group in groups]
    for run in runs:
        missing = run.num_asked - len(run.results)
        if missing > 0:
            raise InvalidArgument(f"{run.folder}: {missing} of {run.num_asked} answers are missing; end the run by "
                                  "--resume, or name all of its shards")
    return runs


def _check_same_problems(runs: Sequence[Run]) -> None:
    for run in runs:
        may_differ = _DIFFER_IN_FRONTS
        if "pebble" not in (runs[0].manifest.get("task"), run.manifest.get("task")):
            may_differ += ("task", "seed")  # the problems of a file do not follow from the seed
        key = differing_key(runs[0].manifest, run.manifest, may_differ)
        if key:
            raise InvalidArgument(f'{runs[0].folder} and {run.folder} have no fronts in common: their "{key}" '
                                  "differs; they are to be of the same problems and sampled alike")


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
        return any(policy["name"] == self.policy and policy["scorer"] == "dms" for policy in _ebb.policies())

    @property
    def compression(self) -> str:
        """The compression ratio, or the limit of rows that stands in its place."""
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


def collect(parts: Iterable[Run]) -> tuple[list[str], list[ChainSet]]:
    """The methods, the full cache first, and the settings of all runs."""
    runs = whole_runs(parts)
    if not runs:
        raise InvalidArgument("expected folders that `ebb eval` wrote")
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


def votes(answers: Sequence[Json]) -> tuple[bool, bool]:
    """Whether the most frequent answer is right, and whether any is. Right answers count as the same, and so do
    wrong ones that are the same number or expression; ties go to the answer that sorts first."""
    counts: dict[str, int] = {}
    right: str | None = None
    for answer in answers:
        text = answer["extracted"]
        if answer["correct"]:
            right = text if right is None else right
            counts[right] = counts.get(right, 0) + 1
        elif text:
            same = (other for other in sorted(counts) if other != right
                    and _ebb.same_formula(text, other) and _ebb.same_formula(other, text))
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
    """Returns a setting's options where nothing else tells it from another setting, else nothing."""
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


# Tables and pages


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    separator = "|" + "---|" * len(header)
    return "\n".join(separator if line is lines[1] else f"| {' | '.join(line)} |" for line in lines) + "\n"


def _percent(value: float) -> str:
    return f"{100 * value:+.1f}"


def margin_header(margins: Sequence[Json]) -> list[str]:
    return [f"points above {margins[0]['over']}", "at equal reads", "at equal peak rows"]


def margin_rows(margins: Sequence[Json]) -> list[list[str]]:
    return [[one["series"], *("-" if one[cost] is None else _percent(one[cost]) for cost in COSTS)] for one in margins]


def margin_table(margins: Sequence[Json]) -> str:
    return _table(margin_header(margins), margin_rows(margins)) if margins else ""


def _margin_text(one: Json) -> str:
    """"+3.1 (-0.5 to +6.2), NA in 12.0 %"."""
    if one["margin"] is None and one["none"] == 1:
        return "NA"
    text = "NA" if one["margin"] is None else _percent(one["margin"])
    if one["margin"] is not None and one["low"] is not None:
        text += f" ({_percent(one['low'])} to {_percent(one['high'])})"
    return f"{text}, NA in {100 * one['none']:.1f} %" if one["none"] > 0 else text


_POINT_HEADER = ("method", "L-W-CR", "majority", "pass@all", "reads", "peak rows", "on the front by")
_MARGIN_HEADER = ("points above", "majority, at equal reads", "at equal peak rows", "pass@all, at equal reads",
                  "at equal peak rows")


def _point_rows(fronts: Json) -> Iterator[list[str]]:
    for point in fronts["points"]:
        scores = [f"{100 * point[score]:.1f} % ({100 * point[f'{score}_low']:.1f} - {100 * point[f'{score}_high']:.1f})"
                  for score in SCORES]
        on_front = point["on_front"]["majority"]
        by = [name for cost, name in zip(COSTS, ("reads", "peak rows")) if on_front[cost]]
        yield [point["method"], point["name"], *scores, *(f"{point[cost]:.0f}" for cost in COSTS), ", ".join(by)]


def _margin_rows(fronts: Json) -> Iterator[list[str]]:
    for one in fronts["margins"]:
        yield [f"{one['method']} over {one['over']}",
               *(_margin_text(one[score][cost]) for score in SCORES for cost in COSTS)]


def front_table(fronts: Json) -> str:
    """Points and margins as Markdown."""
    text = _table(_POINT_HEADER, _point_rows(fronts))
    text += "".join(f"\nLeft out, since no request began: {setting}\n" for setting in fronts["left_out"])
    return text + ("\n" + _table(_MARGIN_HEADER, _margin_rows(fronts)) if fronts["margins"] else "")


def plot(fronts: Json, *, score: str = "majority", cost: str = "kv_reads", ax: Any = None) -> Any:
    """Every method's points, with their intervals, and its front (matplotlib)."""
    from .plots import _axes

    ax = _axes(ax)
    for name in fronts["methods"]:
        points = [point for point in fronts["points"] if point["method"] == name]
        values = np.array([point[score] for point in points])
        error = [values - [point[f"{score}_low"] for point in points],
                 np.array([point[f"{score}_high"] for point in points]) - values]
        drawn = ax.errorbar([point[cost] for point in points], values, yerr=np.maximum(error, 0), fmt="o",
                            markersize=4, elinewidth=0.6, label=name)
        best = sorted((point[cost], point[score]) for point in points if point["on_front"][score][cost])
        ax.plot(*zip(*best), color=drawn[0].get_color(), linewidth=1)
    ax.set_xscale("log")
    ax.set_xlabel({"kv_reads": "rows read in decode steps", "peak_tokens": "peak rows"}[cost])
    ax.set_ylabel({"majority": "majority is right", "pass_all": "any answer is right"}[score])
    ax.legend(fontsize="small")
    return ax


def page(fronts: Json) -> str:
    """One HTML file with the charts and tables."""
    names = fronts["methods"]
    drawn, of_legend = [], []
    for score, title in zip(SCORES, ("The majority is right", "Any answer is right")):
        for cost, axis in zip(COSTS, ("rows read in decode steps", "peak rows (tokens)")):
            series = []
            for i, name in enumerate(names):
                points = [point for point in fronts["points"] if point["method"] == name]
                best = sorted((point[cost], 100 * point[score])
                              for point in points if point["on_front"][score][cost])
                style = dict(colour=charts.PALETTE[i % 10], shape=charts.SHAPES[i % 6])
                series.append(charts.Series(name, *zip(*best), colour=style["colour"], dash=charts.DASHES[i // 10 % 4],
                                            silent=True))
                series.append(charts.Series(
                    name, [point[cost] for point in points], [100 * point[score] for point in points], **style,
                    line=False,
                    whiskers=[(100 * point[f"{score}_low"], 100 * point[f"{score}_high"]) for point in points],
                    tips=[f"{name} {point['name']}\n{100 * point[score]:.1f} % ({100 * point[f'{score}_low']:.1f} – "
                          f"{100 * point[f'{score}_high']:.1f})\n{charts.number(point[cost])}" for point in points]))
                if not drawn:
                    of_legend.append(charts.Series(name, [], [], **style, dash=charts.DASHES[i // 10 % 4]))
            drawn.append(charts.Chart(f"{title}, against {axis.split(' (')[0]}", "",
                                      charts.Axis(f"{axis}, log scale", log=True, format=charts.short),
                                      charts.Axis("accuracy (%)", 0, 100), series))
    parts = [
        charts.paragraph(", ".join(f"{key} {value}" for key, value in fronts["run"].items() if value is not None)),
        charts.paragraph(
            "A point L-W-CR: at most L tokens an answer, W answers to a problem, and a compression ratio or the budget "
            "in its place. Lines are Pareto fronts; bars are 95 % intervals over problems. A name hides and shows its "
            "points."),
        charts.legend(of_legend), charts.figures(drawn), "<h2>Points</h2>",
        charts.table(_POINT_HEADER, _point_rows(fronts), words=("on the front by",))]
    if fronts["margins"]:
        parts += ["<h2>Margins between fronts</h2>", charts.table(_MARGIN_HEADER, _margin_rows(fronts))]
    parts += [charts.paragraph(f"Left out, since no request began: {setting}") for setting in fronts["left_out"]]
    footer = "docs/user/evaluation.md defines points, fronts, margins and intervals."
    return charts.page("Fronts over several runs", parts, footer, fronts, "fronts.json")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python3 -m ebb.report", description=__doc__.split("\n\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    of_eval = commands.add_parser("eval", help="a page with charts of one run")
    of_eval.add_argument("folder", metavar="FOLDER", help="a folder that `ebb eval` or `ebb report` wrote")
    of_eval.add_argument("--out", metavar="FILE", help="the page; FOLDER/report.html by default")
    of_margins = commands.add_parser("margins", help="how far the fronts of one run's policies lie apart")
    of_margins.add_argument("folder", metavar="FOLDER", help="a folder that `ebb eval` wrote")
    of_fronts = commands.add_parser("fronts", help="accuracy against cost over several runs")
    of_fronts.add_argument("folders", nargs="+", metavar="FOLDER", help="a folder that `ebb eval` wrote")
    of_fronts.add_argument("--out", required=True, metavar="FOLDER", help="for fronts.json, fronts.md, report.html")
    of_fronts.add_argument("--json", action="store_true", help="print fronts.json in one line instead of tables")
    of_profile = commands.add_parser("profile", help="a page with charts of a profile")
    of_profile.add_argument("file", metavar="FILE", help="what `ebb profile --json` printed; -: stdin")
    of_profile.add_argument("--out", required=True, metavar="FILE", help="the page")
    options = parser.parse_args(arguments)
    try:
        return {"eval": _main_eval, "margins": _main_margins, "fronts": _main_fronts,
                "profile": _main_profile}[options.command](options)
    except Error as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, InvalidArgument) else 1
    except OSError as error:
        print(f"error: cannot write {error.filename or 'stdout'}: {error.strerror}", file=sys.stderr)
        return 1


def _main_eval(options: argparse.Namespace) -> int:
    from .eval_page import eval_page

    run, summary = read_run(options.folder), read_summary(options.folder)
    notes = gaps(summary, run)
    text = eval_page(run.manifest, add_times(summary, run), margins_of(summary), notes)
    for note in notes:
        print(f"note: {options.folder}: {note}", file=sys.stderr)
    out = Path(options.out or Path(options.folder) / "report.html")
    out.write_text(text, encoding="utf-8")
    print(f"[report: {out}]", file=sys.stderr)
    return 0


def _main_margins(options: argparse.Namespace) -> int:
    sys.stdout.write(margin_table(margins_of(read_summary(options.folder))))
    return 0


def _main_fronts(options: argparse.Namespace) -> int:
    fronts = compare(read_run(folder) for folder in options.folders)
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    table = front_table(fronts)
    (out / "fronts.json").write_text(json.dumps(fronts, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    (out / "fronts.md").write_text(table, encoding="utf-8")
    (out / "report.html").write_text(page(fronts), encoding="utf-8")
    sys.stdout.write(json.dumps(fronts, ensure_ascii=False) + "\n" if options.json else table)
    return 0


def _main_profile(options: argparse.Namespace) -> int:
    from .profile_page import profile_page

    text = sys.stdin.read() if options.file == "-" else _read(Path(options.file))
    page_text = profile_page(_parse(text, options.file))
    Path(options.out).write_text(page_text, encoding="utf-8")
    print(f"[report: {options.out}]", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
