"""scripts/judge: math-verify as a second judge of what `ebb-lab eval` wrote."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("math_verify")

JUDGE = Path(__file__).parents[2] / "scripts/judge"
PROBLEMS = [("a/1", r"\frac{1}{2}"), ("a/2", "18"), ("a/3", r"x^2+1"), ("a/4", "3")]


@pytest.fixture
def task(tmp_path):
    path = tmp_path / "task.jsonl"
    path.write_text("".join(json.dumps(dict(problem="?", answer=answer, level=1, unique_id=name)) + "\n"
                            for name, answer in PROBLEMS))
    return path


def judge(run, task):
    return subprocess.run([sys.executable, JUDGE, run, task], capture_output=True, text=True)


def counts(text):
    return {name: int(count) for count, name in re.findall(r"^ *(\d+) (.*)$", text, re.M)}


def test_every_answer_of_a_run_is_judged_again(program, task, tmp_path):
    subprocess.run([str(program) + "-lab", "eval", "--task", f"{task}:math", "--problems", "0", "-n", "30", "--quiet", "--out",
                    tmp_path / "run"], check=True, stdout=subprocess.DEVNULL)
    end = judge(tmp_path / "run", task)
    assert end.returncode == 0, end.stderr
    lines = [json.loads(line) for line in (tmp_path / "run/results.jsonl").read_text().splitlines()]
    answers = sum(line["outcome"] in ("right", "wrong") for line in lines)
    of_extracts = sum(count for name, count in counts(end.stdout).items() if "extract" in name)
    assert of_extracts == answers and counts(end.stdout).get("without an answer", 0) == 4 - answers


def test_verdicts_that_differ_are_shown(task, tmp_path):
    def line(problem, extracted, correct, outcome="right"):
        return dict(problem=problem, id=PROBLEMS[problem][0], policy="full", budget="", tiers="", correct=correct,
                    outcome=outcome, extracted=extracted, text=f"So it is $\\boxed{{{extracted}}}$.")

    results = [line(0, "0.5", True), line(1, "19", False, "wrong"), line(2, "1+x^2", False, "wrong"),
               line(3, "", False, "no_answer")]
    (tmp_path / "results.jsonl").write_text("".join(json.dumps(one) + "\n" for one in results))
    end = judge(tmp_path, task)
    assert end.returncode == 0, end.stderr
    assert counts(end.stdout) == {
        "ebb right, math-verify of ebb's extract right": 1, "ebb right, math-verify of the text right": 1,
        "ebb wrong, math-verify of ebb's extract wrong": 1, "ebb wrong, math-verify of the text wrong": 1,
        "ebb wrong, math-verify of ebb's extract right": 1, "ebb wrong, math-verify of the text right": 1,
        "without an answer": 1}
    differ = [line for line in end.stdout.splitlines() if line.startswith("problem ")]
    assert len(differ) == 1 and differ[0].startswith("problem 2, full") and "'1+x^2' for 'x^2+1'" in differ[0]


def test_a_run_of_other_problems_is_refused(task, tmp_path):
    (tmp_path / "results.jsonl").write_text(json.dumps(dict(id="b/1", outcome="right")) + "\n")
    end = judge(tmp_path, task)
    assert end.returncode == 1 and 'answers a problem "b/1"' in end.stderr
