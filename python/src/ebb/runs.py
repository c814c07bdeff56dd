"""The folders that `ebb-lab eval` writes: reading and checking them, merging shards, and times."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Iterable, Sequence

import numpy as np

from .errors import Corrupt, InvalidArgument, NotFound

Json = dict[str, Any]
#: The file of verdicts that `ebb.report judge` write next to the answers.
VERDICTS = "verdicts.jsonl"
#: The fields that name a setting; answers that differ in their seed alone belong to one.
SETTING = ("policy", "budget", "tiers", "options")


def is_full_cache(record: Json) -> bool:
    return record["policy"] == "full" and not record["budget"] and not record["tiers"]


def keeps_every_row(record: Json) -> bool:
    """Returns whether a setting is a full cache, with its rows in a single tier or, exactly, in two."""
    return record["policy"] == "full" and not record["budget"] and all(
        re.fullmatch(r"t0=.*|t1=.*|evict=0%", word) for word in record["tiers"].split())


@dataclass
class Run:
    """A folder that `ebb-lab eval` wrote: grid.json and results.jsonl."""

    folder: str
    manifest: Json
    results: list[Json]
    times: list[Json] = field(default_factory=list)  # of the same answers
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
    "options": "text", "seed": "index", "correct": "truth", "outcome": "text", "extracted": "text",
    "finish_reason": "text", "generated_tokens": "number", "peak_kv_bytes": "number", "peak_tokens": "number",
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


def parse_json(text: str, place: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise Corrupt(f"{place}: not JSON") from None


def read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise NotFound(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Corrupt(f"{path}: not UTF-8") from None


def _lines(path: Path, cut: list[str]) -> list[Json]:
    """Lines that end. A kill may have cut the last one, which `--resume` writes again: then `cut` gets the path."""
    *whole, last = read_text(path).split("\n")
    if last:
        cut.append(str(path))
    return [parse_json(line, f"{path}, line {number}") for number, line in enumerate(whole, 1)]


def read_run(folder: str | Path) -> Run:
    """Reads and checks a run. Answers without a line in times.jsonl are left out, as `ebb-lab eval` does."""
    path = Path(folder)
    grid = path / "grid.json"
    manifest = parse_json(read_text(grid), str(grid))
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
    times = _lines(path / "times.jsonl", cut)
    for number, line in enumerate(times, 1):
        if not isinstance(line, dict) or not _KINDS["number"](line.get("seconds")):
            raise Corrupt(f'{path / "times.jsonl"}, line {number}: "seconds" is missing, or no such value')
    number = min(len(results), len(times))
    verdicts = _verdicts(path / VERDICTS)
    results = [line | verdicts.get((line["setting"], line["problem"]), {}) for line in results[:number]]
    manifest |= {name: value for name, value in _DEFAULTS.items() if name not in manifest}
    return Run(str(folder), manifest, results, times[:number], cut)


def _verdicts(path: Path) -> dict[tuple[int, int], Json]:
    """What math-verify found, by setting and problem; nothing where the run was not judged."""
    if not path.exists():
        return {}
    verdicts = {}
    for number, line in enumerate(_lines(path, []), 1):
        if not (isinstance(line, dict) and {"setting", "problem", "correct", "outcome", "extracted"} <= line.keys()):
            raise Corrupt(f"{path}, line {number}: no verdict")
        verdicts[line["setting"], line["problem"]] = line
    return verdicts


def gaps(run: Run) -> list[str]:
    """Returns sentences that name the answers missing in a run's files, with their number, and the properties in which
    its machines differ. The list is empty for a complete run of one machine."""
    texts = machine_notes(run)
    texts += [f"The last line of {Path(path).name} is cut." for path in run.cut]
    there, asked = len(run.results), run.num_asked
    if there < asked:
        texts.append(f"{asked - there} of {asked} answers are missing: the run did not end, or its files were cut; "
                     "`ebb-lab eval --resume` adds them.")
    return texts


def add_times(summary: Sequence[Json], run: Run) -> list[Json]:
    """`summary` with the fields that vary between runs, null without times: mean `seconds` of an answer, `tokens_per_s`
    including the time for the prompt, and `overhead` (0.1: a token takes 10 % longer than with the full cache)."""
    spent: dict[tuple[str, ...], list[float]] = {}
    for line, time in zip(run.results, run.times):
        of_setting = spent.setdefault(tuple(line[name] for name in SETTING), [0.0, 0.0, 0.0])
        for i, value in enumerate((time["seconds"], line.get("generated_tokens", 0), 1)):
            of_setting[i] += value
    times = {}
    for key, (seconds, tokens, answers) in spent.items():
        times[key] = seconds / answers, tokens / seconds if seconds > 0 else None
    full = next((rate for key, (_, rate) in times.items() if is_full_cache(dict(zip(SETTING, key)))), None)
    records = []
    for record in summary:
        mean, rate = times.get(tuple(record[name] for name in SETTING), (None, None))
        overhead = full / rate - 1 if full and rate else None
        records.append({**record, "seconds": mean, "tokens_per_s": rate, "overhead": overhead})
    return records


def differing_key(a: Json, b: Json, may_differ: Sequence[str] = ()) -> str:
    """The first key in which two manifests differ; "": none. The path of the task may differ, and the machines."""
    for key in [*a, *b]:
        if key in ("task", "made_by") or key in may_differ:
            continue
        if a[key] != b[key] if key in a and key in b else key not in _DERIVED:
            return key
    return ""


#: The properties that decide whether machines round alike.
_MACHINE = ("version", "commit", "cpu", "instructions")


def machines(runs: Iterable[Run]) -> list[Json]:
    """The machines that computed the answers, those of one version, commit, processor and instruction set once."""
    found: dict[tuple[str, ...], Json] = {}
    for run in runs:
        for one in run.manifest.get("made_by", []):
            found.setdefault(tuple(one.get(key, "") for key in _MACHINE), one)
    return list(found.values())


def machine_notes(run: Run) -> list[str]:
    """Returns sentences that name the properties in which a run's machines differ; none if they round alike."""
    notes = []
    for key in _MACHINE:
        values = list(dict.fromkeys(one.get(key, "") for one in run.manifest.get("made_by", [])))
        if len(values) > 1:
            notes.append(f"The answers are of more than one {key}, and may differ in rounding: {', '.join(values)}.")
    return notes


def merge(runs: Sequence[Run], any_version: bool = False) -> Run:
    """Shards of a run as one run, in the order of settings and problems. Raises InvalidArgument for answers of
    different versions of ebb, unless any_version."""
    settings: list[Json] = []
    answers: dict[tuple[int, int], tuple[Json, Json]] = {}
    for run in runs:
        key = differing_key(runs[0].manifest, run.manifest, _DIFFER_IN_SHARDS)
        if key:
            raise InvalidArgument(f"{runs[0].folder} and {run.folder} are answers to different questions: "
                                  f'their "{key}" differs')
        settings += [setting for setting in run.manifest["settings"] if setting not in settings]
        places = [settings.index(setting) for setting in run.manifest["settings"]]
        for line, time in zip(run.results, run.times):
            place = places[line["setting"]], line["problem"]
            line, time = ({**one, "setting": place[0]} for one in (line, time))
            if answers.setdefault(place, (line, time))[0] != line:
                raise InvalidArgument(f"two answers to problem {place[1]} of setting {place[0]} differ")
    made_by = machines(runs)
    versions = list(dict.fromkeys(one.get("version", "") for one in made_by))
    if len(versions) > 1 and not any_version:
        raise InvalidArgument(f"the answers are of different versions of ebb, {', '.join(versions)}, which may answer "
                              "otherwise; --any-version puts them together all the same")
    manifest = {**runs[0].manifest, "shard": "0/1", "settings": settings}
    if made_by:
        manifest["made_by"] = made_by
    ordered = [answers[place] for place in sorted(answers)]
    return Run(runs[0].folder, manifest, [line for line, _ in ordered], [time for _, time in ordered])


def write_run(run: Run, folder: str | Path, parts: Sequence[str | Path] = ()) -> None:
    """Writes the three files of a run. Answers to other questions are not replaced, nor those of `parts`."""
    path = Path(folder)
    if any(path.exists() and Path(part).exists() and path.samefile(part) for part in parts):
        raise InvalidArgument(f"--out {folder}: its answers are put together here; choose another folder")
    grid = path / "grid.json"
    if grid.exists():
        there = {**_DEFAULTS, **parse_json(read_text(grid), str(grid))}
        key = differing_key(run.manifest, there, _DIFFER_IN_SHARDS)
        if key:
            raise InvalidArgument(f'{folder} holds another run, whose "{key}" differs; choose another --out')
    path.mkdir(parents=True, exist_ok=True)
    grid.write_text(json.dumps(run.manifest, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    for name, lines in (("results.jsonl", run.results), ("times.jsonl", run.times)):
        (path / name).write_text("".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n"
                                         for line in lines), encoding="utf-8")


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
