"""ebb.verdicts: math-verify judges answers in LaTeX."""

import json
import subprocess

import pytest

pytest.importorskip("math_verify")

import ebb
from ebb import report
from ebb.runs import read_run
from ebb.verdicts import references, same_formula, verdict

PROBLEMS = [("a/1", r"\frac{1}{2}"), ("a/2", "18"), ("a/3", r"x^2+1"), ("a/4", "3")]


@pytest.fixture
def task(tmp_path):
    path = tmp_path / "task.jsonl"
    path.write_text("".join(json.dumps(dict(problem="?", answer=answer, level=1, unique_id=name)) + "\n"
                            for name, answer in PROBLEMS))
    return path


@pytest.mark.parametrize("text, reference, outcome, correct", [
    (r"So it is $\boxed{0.5}$.", r"\frac{1}{2}", "right", True),
    (r"So it is $\boxed{1+x^2}$.", "x^2+1", "right", True),
    (r"So it is $\boxed{19}$.", "18", "wrong", False),
    (r"<think>$\boxed{19}$</think>The answer is $18$.", "18", "right", True),
    (r"<think>It may be $18$.</think>", "18", "right", True),
    ("Let us think", "18", "no_answer", False),
    ("<think>\n</think>\n", "18", "empty", False),
])
def test_answers_are_judged_by_value(text, reference, outcome, correct):
    judged = verdict(text, reference)
    assert (judged["outcome"], judged["correct"]) == (outcome, correct)
    assert bool(judged["extracted"]) == (outcome in ("right", "wrong"))


def test_formulas_are_the_same_by_value():
    assert same_formula(r"\frac{3}{4}", "0.75") and same_formula(r"2\sqrt{2}", r"\sqrt{8}")
    assert not same_formula("x+1", "x-1")


def test_verdicts_of_a_run_take_the_place_of_those_of_texts(program, task, tmp_path, capsys):
    run = tmp_path / "run"
    subprocess.run([f"{program}-lab", "eval", "--task", f"{task}:math", "--problems", "0", "-n", "30", "--quiet",
                    "--out", run], check=True, stdout=subprocess.DEVNULL)
    lines = [json.loads(line) for line in (run / "results.jsonl").read_text().splitlines()]
    lines[2] |= dict(text=r"So it is $\boxed{1+x^2}$.", extracted="1+x^2", outcome="wrong", correct=False)
    before = "".join(json.dumps(line) + "\n" for line in lines)
    (run / "results.jsonl").write_text(before)
    assert report.main(["judge", str(run), str(task)]) == 0
    assert "1 of 4 answers are right" in capsys.readouterr().out
    assert (run / "results.jsonl").read_text() == before
    judged = read_run(run).results[2]
    assert judged["correct"] and judged["outcome"] == "right" and judged["rule"] == "math_verify"
    assert report.main(["summary", str(run)]) == 0
    assert "1/4" in capsys.readouterr().out
    (run / "verdicts.jsonl").write_text('{"setting": 0}\n')
    assert report.main(["summary", str(run)]) == 1
    assert "verdicts.jsonl, line 1: no verdict" in capsys.readouterr().err


def test_a_data_frame_of_answers(task):
    pandas = pytest.importorskip("pandas")
    answers = pandas.DataFrame([dict(id="a/1", text=r"$\boxed{0.5}$", correct=False, outcome="wrong"),
                                dict(id="a/2", text=r"$\boxed{5}$", correct=False, outcome="wrong")])
    assert ebb.judge_answers(answers, task).correct.tolist() == [True, False]


def test_tasks_that_do_not_fit(task, tmp_path, capsys):
    assert references(task)["a/2"] == "18"
    gsm8k = tmp_path / "gsm8k.jsonl"
    gsm8k.write_text('\ufeff{"answer": "She has 5.\\n#### 18"}\n\n{"answer": 3, "id": "b"}\n{"answer": 4, "id": "b"}\n')
    assert references(gsm8k) == {"line-1": "18", "b": "3", "b#line-4": "4"}
    with pytest.raises(ebb.NotFound, match="cannot read"):
        references(tmp_path / "none")
    gsm8k.write_text("[]\n")
    with pytest.raises(ebb.Corrupt, match='line 1: expected an object with a field "answer"'):
        references(gsm8k)
    pandas = pytest.importorskip("pandas")
    with pytest.raises(ebb.InvalidArgument, match='a problem "c/1"'):
        ebb.judge_answers(pandas.DataFrame([dict(id="c/1", text="")]), task)
