"""The recorded runs of docs/results.md, summarized by this code."""

import json
import tarfile
from pathlib import Path

import pytest

pytest.importorskip("scipy")

from ebb.runs import SETTING, read_run
from ebb.summary import compared, summarize_run

FIGURES = Path(__file__).parents[2] / "docs/figures"
COUNTS = ("n", "correct", "no_answer", "empty", "truncated", "loops", "errors")


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    folder = tmp_path_factory.mktemp("archives")
    for path in sorted(FIGURES.glob("results-real*.tar.xz")):
        with tarfile.open(path) as archive:
            archive.extractall(folder, filter="data")
    return folder


def run_of(folder):
    # Some archives have no times, since other programs ran at the same time; answers without one would be left out.
    answers = (folder / "results.jsonl").read_text().count("\n")
    times = folder / "times.jsonl"
    if not times.exists() or times.read_text().count("\n") < answers:
        times.write_text('{"seconds": 1}\n' * answers)
    return read_run(folder)


def test_counts_and_intervals_are_those_that_were_recorded(archives):
    settings = answers = 0
    for path in sorted(archives.rglob("summary.json")):
        if not (path.parent / "results.jsonl").exists():
            continue
        recorded = {tuple(one[name] for name in SETTING): one for one in json.loads(path.read_text())}
        summary = summarize_run(run_of(path.parent).results)
        assert len(summary) == len(recorded)
        for record in summary:
            old = recorded[tuple(record[name] for name in SETTING)]
            assert {name: record[name] for name in COUNTS} == {name: old[name] for name in COUNTS}, path
            for name in ("accuracy", "ci_low", "ci_high", "peak_tokens", "kv_reads"):
                assert record[name] == pytest.approx(old[name], rel=1e-9), (path, name)
            settings, answers = settings + 1, answers + record["n"]
    assert settings >= 200 and answers >= 4000


def of_setting(run, **fields):
    return [line for line in run.results if all(line[name] == value for name, value in fields.items())]


# An unpaired test had p 0.16 and 0.48 for these results of docs/results.md.
@pytest.mark.parametrize("evicted, won, lost, p", [("20%", 2, 13, 0.0074), ("10%", 1, 7, 0.0703)])
def test_the_central_result_is_what_a_paired_test_says(archives, evicted, won, lost, p):
    full = of_setting(run_of(archives / "results-real/full"), policy="full", tiers="")
    other = of_setting(run_of(archives / "results-real/evicted"), tiers=f"t0=100% evict={evicted}")
    found = compared(other, full)
    assert (found["won"], found["lost"]) == (won, lost) and found["p"] == pytest.approx(p, rel=0.01)


@pytest.mark.parametrize("run, tiers, won, lost", [("kv-types", "t2=old:int4", 3, 3), ("kv-types-math", "t2=old:int4", 2, 2)])
def test_compressed_caches_win_and_lose_as_often(archives, run, tiers, won, lost):
    (record,) = (one for one in summarize_run(run_of(archives / "results-real" / run).results) if one["tiers"] == tiers)
    assert (record["won_full"], record["lost_full"], record["p_full"]) == (won, lost, 1)


def test_only_the_listed_difference_of_the_judge_of_math(archives):
    """docs/dev/evaluation.md: line 118 of kv-types-math, a text that was cut, had no answer before."""
    pytest.importorskip("math_verify")
    from ebb.verdicts import verdict

    answers = archives / "results-real/kv-types-math/results.jsonl"
    line = json.loads(answers.read_text().splitlines()[117])
    assert line["outcome"] == "no_answer" and line["id"].startswith("test/precalculus/1199")
    judged = verdict(line["text"], "any")
    assert (judged["outcome"], judged["extracted"]) == ("wrong", "c")
