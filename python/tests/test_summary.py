"""Summaries of runs: counts, exact intervals and tests, votes, and runs put together."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("scipy")

from ebb import report
from ebb.errors import InvalidArgument
from ebb.runs import read_run
from ebb.summary import correlation_interval, fisher_p, holm, interval, mcnemar_p, setting_name, summarize_run


def answer(problem, seed, extracted, correct, **more):
    outcome = "right" if correct else "wrong" if extracted else "no_answer"
    return dict(policy="full", budget="", tiers="", options="", problem=problem, seed=seed, extracted=extracted,
                correct=correct, outcome=outcome, finish_reason="stop", peak_tokens=9, kv_reads=90) | more


#: Of four problems: 0 is right twice, 1 once while a wrong answer comes twice, 2 never; 3 is a tie of three answers, of
#: which the one that sorts first counts.
SAMPLES = [
    answer(0, 1, "7", True), answer(0, 2, "7", True), answer(0, 3, "8", False),
    answer(1, 1, "3", True), answer(1, 2, "4", False), answer(1, 3, "4", False),
    answer(2, 1, "5", False), answer(2, 2, "", False), answer(2, 3, "5", False),
    answer(3, 1, "1", True), answer(3, 2, "2", False), answer(3, 3, "9", False)]


# "Not All Thoughts Need HBM", Tables 1, 3 and 5: percents, rounded.
@pytest.mark.parametrize("right, number, low, high", [
    (33, 50, 51, 79), (30, 50, 45, 74), (1, 50, 0, 11), (4, 50, 2, 19), (142, 200, 64, 77), (5, 200, 1, 6),
    (0, 200, 0, 2)])
def test_intervals_have_the_ends_of_the_published_tables(right, number, low, high):
    assert [round(100 * end) for end in interval(right, number)] == [low, high]
    assert interval(0, 0) == (0, 1)


# The first is Fisher's lady tasting tea.
@pytest.mark.parametrize("a, b, p", [((3, 4), (1, 4), 17 / 35), ((8, 10), (1, 6), 5 / 143), ((3, 3), (5, 5), 1),
                                     ((0, 10), (0, 10), 1)])
def test_fishers_test_is_exact(a, b, p):
    one, other = (dict(zip(("correct", "n"), count)) for count in (a, b))
    assert fisher_p(one, other) == pytest.approx(p) == fisher_p(other, one)


def test_a_correlation_is_surer_with_more_samples():
    assert correlation_interval(0.5, 100) == (pytest.approx(0.33664330440909185), pytest.approx(0.6341398407485443))
    assert correlation_interval(1, 3) == (-1, 1) and correlation_interval(1, 100) == (1, 1)


def test_majority_and_any_right_answer_over_samples():
    (record,) = summarize_run(SAMPLES)
    assert (record["n"], record["correct"], record["samples"]) == (12, 4, 3)
    assert record["majority"] == 2 / 4 and record["pass_all"] == 3 / 4
    assert "majority" not in summarize_run([answer(0, 1, "7", True), answer(1, 1, "3", False)])[0]
    # A run that was stopped while it sampled a second time.
    (record,) = summarize_run([answer(0, 1, "7", True), answer(1, 1, "7", True), answer(2, 1, "7", True),
                               answer(3, 1, "8", False), answer(0, 2, "7", True)])
    assert record["majority"] == record["pass_all"] == 0.75


def test_a_budget_in_percent_is_a_share_of_something():
    def base_of(policy, budget):
        return summarize_run([answer(0, 1, "3", True, policy=policy, budget=budget)])[0]["budget_of"]

    assert base_of("raas:alpha=0.1", "50%") == "the rows ever unprotected"
    assert base_of("windowed:h2o:w=4", "50%") == base_of("tova+scorer=random", "50%") == "all rows, the prompt's too"
    assert base_of("attention", "64") is base_of("of_my_own", "50%") is base_of("full", "") is None


def test_what_was_refused_costs_nothing():
    answers = [answer(0, 1, "7", True, peak_tokens=144.0, kv_reads=9.0, generated_tokens=60),
               answer(1, 1, "", False, peak_tokens=0.0, error="no room"),
               answer(2, 1, "", False, policy="h2o", peak_tokens=0.0, error="no room")]
    full, h2o = summarize_run(answers)
    assert (full["n"], full["errors"], full["peak_tokens"], full["generated_tokens"]) == (2, 1, 144, 60)
    assert h2o["peak_tokens"] is None


def test_settings_are_tested_against_one_of_them():
    answers = SAMPLES + [one | dict(policy="h2o", budget="25%", correct=True) for one in SAMPLES]
    full, h2o = summarize_run(answers, "h2o 25%")
    # By the binomial distribution: h2o alone is right 8 times, the full cache alone never.
    assert (full["won_against"], full["lost_against"], full["p_against"]) == (0, 8, 2 / 2**8)
    assert (h2o["won_full"], h2o["lost_full"], h2o["p_full"]) == (8, 0, 2 / 2**8)
    assert h2o["p_against"] is full["p_full"] is None and h2o["retention"] == 3
    with pytest.raises(InvalidArgument, match="unknown setting; valid: full, h2o 25%"):
        summarize_run(answers, "nobody")
    apart = summarize_run(answers + [answers[-1] | dict(options="window=8")])
    assert [setting_name(one, apart) for one in apart] == ["full", "h2o 25%", "h2o 25% window=8"]


# docs/results.md: two settings of GSM8K, 20 % and 10 % of the rows evicted, and random with half of them.
@pytest.mark.parametrize("won, lost, p", [(2, 13, 0.0074), (1, 7, 0.0703), (1, 8, 0.0391), (1, 13, 0.0018),
                                          (0, 23, 2.4e-7), (0, 0, 1), (5, 5, 1)])
def test_mcnemars_test_is_exact(won, lost, p):
    assert mcnemar_p(won, lost) == pytest.approx(p, rel=0.02) == mcnemar_p(lost, won)


def test_holms_correction_of_a_table():
    assert holm([0.01, None, 0.04, 0.03, 0.5]) == [pytest.approx(0.04), None, pytest.approx(0.09), pytest.approx(0.09),
                                                   0.5]
    assert holm([0.9, 0.8]) == [1, 1]


def test_answers_are_paired_by_problem_and_seed():
    def of(policy, right, seed=0, first=0):
        return [answer(first + i, seed, "x", bool(one), policy=policy) for i, one in enumerate(right)]

    full, other = summarize_run(of("full", [1, 1, 0, 1]) + of("h2o", [0, 0, 1, 1]))
    assert (other["won_full"], other["lost_full"], other["p_full"]) == (1, 2, 1)
    # The answers of both seeds are paired with the full cache's only answer.
    full, other = summarize_run(of("full", [1, 0]) + of("random", [0, 0], 1) + of("random", [0, 1], 2))
    assert (other["won_full"], other["lost_full"]) == (1, 2)
    # An unfinished run: the answers of both alone are compared.
    full, other = summarize_run(of("full", [1, 1, 1]) + of("h2o", [0]))
    assert (other["won_full"], other["lost_full"]) == (0, 1)
    # Without a problem in common only the shares can be compared.
    full, other = summarize_run(of("full", [1] * 5) + of("h2o", [0] * 5, first=5))
    assert other["won_full"] is None and other["p_full"] == pytest.approx(2 / 252)


@pytest.fixture
def evaluate(program, tmp_path):
    task = tmp_path / "task.jsonl"
    task.write_text("".join(json.dumps(dict(question=f"What is {i} + 1?", answer=f"#### {i + 1}")) + "\n"
                            for i in range(6)))

    def run(out, *more):
        command = [f"{program}-lab", "eval", "-m", "pebble", "-n", "24", "--quiet", "--task", f"{task}:gsm8k",
                   "--policies", "full,streaming", "--budgets", "50%", "--sinks", "2", "--window", "4", "--out"]
        subprocess.run([*command, tmp_path / out, *more], check=True, stdout=subprocess.DEVNULL)
        return str(tmp_path / out)

    return run


def bytes_of(folder, *names):
    return [open(f"{folder}/{name}", "rb").read() for name in names]


def test_shards_are_merged_to_the_same_bytes(evaluate, tmp_path, capsys):
    whole, merged = evaluate("whole"), str(tmp_path / "merged")
    shards = [evaluate(f"shard{i}", "--shard", f"{i}/3") for i in (2, 0, 1)]
    assert report.main(["merge", *shards, "--out", merged]) == 0
    assert capsys.readouterr().err == ""
    assert report.main(["summary", whole]) == 0
    grids = [json.loads(text) for text in bytes_of(merged, "grid.json") + bytes_of(whole, "grid.json")]
    assert [len(grid.pop("made_by")) for grid in grids] == [1, 1]
    assert grids[0] == grids[1]
    files = ("results.jsonl", "summary.json", "summary.md")
    assert bytes_of(merged, *files) == bytes_of(whole, *files)
    assert capsys.readouterr().out == open(f"{whole}/summary.md").read()
    assert len(read_run(merged).times) == 12
    assert report.main(["summary", whole, "--against", "full", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed[1]["p_against"] == printed[1]["p_full"] and printed[0]["seconds"] > 0


def test_other_machines_are_named_and_other_versions_refused(evaluate, tmp_path, capsys):
    shards = [evaluate(f"part{i}", "--shard", f"{i}/2") for i in (0, 1)]
    grid = json.loads(open(f"{shards[1]}/grid.json").read())

    def rewrite(**changed):
        grid["made_by"][0] |= changed
        Path(shards[1], "grid.json").write_text(json.dumps(grid))

    rewrite(cpu="another")
    assert report.main(["merge", *shards, "--out", str(tmp_path / "cpus")]) == 0
    assert "more than one cpu" in capsys.readouterr().err
    assert len(read_run(tmp_path / "cpus").manifest["made_by"]) == 2
    rewrite(version="0.1.0")
    assert report.main(["merge", *shards, "--out", str(tmp_path / "versions")]) == 2
    assert "different versions" in capsys.readouterr().err
    assert report.main(["merge", *shards, "--any-version", "--out", str(tmp_path / "versions")]) == 0
    assert report.main(["eval", str(tmp_path / "versions")]) == 0
    page = Path(tmp_path, "versions", "report.html").read_text()
    assert "more than one version" in page and "ebb 0.1.0" in page and "another, cpu:" in page


def test_merging_says_what_is_missing_and_refuses_other_questions(evaluate, tmp_path, capsys):
    half, other = evaluate("half", "--shard", "0/2"), evaluate("other", "--problems", "3")
    some = str(tmp_path / "some")
    assert report.main(["merge", half, "--out", some]) == 0
    assert "6 of 12 answers are missing" in capsys.readouterr().err
    assert report.main(["merge", half, other, "--out", some]) == 2
    assert '"problems" differs' in capsys.readouterr().err
    before = bytes_of(other, "results.jsonl")
    for folder in (half, other):
        assert report.main(["merge", folder, "--out", other]) == 2
        assert "choose another" in capsys.readouterr().err
    assert bytes_of(other, "results.jsonl") == before
    assert report.main(["merge", str(tmp_path / "nowhere"), "--out", some]) == 1


def test_shards_on_a_cluster_are_the_whole(program):
    """Without ray, the Slurm array alone."""
    test = Path(__file__).parents[2] / "examples/cluster/test_cluster"
    assert subprocess.run([sys.executable, test, program], env=os.environ).returncode in (0, 77)
