"""Evaluations: the bytes of `ebb-lab eval`, and policies in Python next to built-in ones."""

import json
import subprocess

import numpy as np
import pytest

import ebb
from ebb import plots

pandas = pytest.importorskip("pandas")

OPTIONS = {"window": 16, "interval": 16}


@pytest.mark.parametrize("policies, budgets, settings", [
    (["full", "attention", "random"], ["25%", "50%"], [OPTIONS]),
    (["attention", "lag_kv"], [], [{"t0": "50%", "evict": "5%", **OPTIONS},
                                   {"t0": "50%", "t2": "20%:int8", **OPTIONS}]),
])
def test_results_are_the_bytes_of_ebb_eval(program, tmp_path, policies, budgets, settings):
    grid = tmp_path / "grid.json"
    grid.write_text(json.dumps({"policies": policies, "budgets": budgets, "settings": settings}))
    subprocess.run([f"{program}-lab", "eval", "--problems", "6", "--grid", grid, "--out", tmp_path / "theirs",
                    "--quiet"], check=True, stdout=subprocess.DEVNULL)
    answers = ebb.eval(problems=6, policies=policies, budgets=budgets, settings=settings, out=tmp_path / "ours")
    theirs = (tmp_path / "theirs" / "results.jsonl").read_bytes()
    assert (tmp_path / "ours" / "results.jsonl").read_bytes() == theirs
    assert len(answers) == theirs.count(b"\n") > 12
    grids = [json.loads((tmp_path / of / "grid.json").read_text()) for of in ("theirs", "ours")]
    assert [one.pop("made_by")[0]["version"] for one in grids] == [ebb.__version__] * 2
    assert grids[0] == grids[1]


def test_a_scorer_in_python_answers_as_the_built_in_one():
    answers = ebb.eval(problems=6, policies=["attention", ebb.Attention], budgets=["25%"],
                       settings=[OPTIONS])
    theirs, ours = answers[answers.setting == 0], answers[answers.setting == 1]
    assert len(theirs) == len(ours) == 6
    for column in ("text", "correct", "rows_evicted", "peak_tokens", "kv_reads"):
        assert theirs[column].tolist() == ours[column].tolist()
    assert ours.policy.iloc[0] == "Attention" and "python=ebb.scorer.Attention#" in ours.options.iloc[0]
    assert ours.rows_evicted.min() > 0


def test_views_cannot_be_kept_in_an_evaluation():
    class Keeps(ebb.Scorer):
        needs = ebb.Needs(mass="sum")
        kept = []

        def observe(self, group, positions, mass, keys, values):
            if mass is not None:
                self.kept.append(mass)

    with pytest.raises(ebb.ViewKept):
        ebb.eval(problems=2, policies=[Keeps], budgets=["25%"], settings=[OPTIONS])
    assert np.isfinite(Keeps.kept[0]).all()


def test_an_exception_ends_an_evaluation():
    class Fails(ebb.Scorer):
        def scores(self, group):
            raise ZeroDivisionError("on purpose")

    with pytest.raises(ZeroDivisionError, match="on purpose"):
        ebb.eval(problems=4, policies=[Fails], budgets=["25%"], settings=[OPTIONS])
    with pytest.raises(ZeroDivisionError):
        ebb.eval(problems=2, on_answer=lambda answer: 1 / 0)
    with pytest.raises(ebb.InvalidArgument, match="none_such"):
        ebb.eval(problems=1, policies=["none_such"])


def test_files_of_problems(tmp_path):
    task = tmp_path / "task.jsonl"
    task.write_text('{"question": "What is three plus four?", "answer": "It is.\\n#### 7"}\n')
    answers = ebb.eval(task=str(task), problems=0, max_tokens=20, answer_rules="last")
    assert len(answers) == 1 and answers.outcome[0] in ("right", "wrong", "no_answer", "empty")


def test_summaries_and_pictures(model):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    answers = ebb.eval(model, problems=5, policies=["full", "attention"], budgets=["25%", "50%"],
                       settings=[OPTIONS])
    summary = ebb.summarize(answers)
    assert summary.policy.tolist() == ["full", "attention", "attention"]
    assert (summary.problems == 5).all()
    assert ((summary.low <= summary.accuracy) & (summary.accuracy <= summary.high)).all()
    for against in ("peak_tokens", "peak_kv_bytes", "kv_reads"):
        axes = plots.accuracy(summary, against=against)
        assert [t.get_text() for t in axes.get_legend().get_texts()] == ["full", "attention"]
    assert summary.won[0] is None or summary.won.isna()[0]
    assert (summary.p_holm[1:] >= summary.p[1:]).all()
    session = model.session(t0="30%", t1="host", evict="20%", **OPTIONS)
    session.generate("First Ada gets three.", max_tokens=80, temperature=0, ignore_eos=True).run()
    axes = plots.tiers_over_time(session)
    # The areas end at the rows that there are.
    top = axes.collections[-1].get_paths()[0].vertices[:, 1].max()
    assert top == pytest.approx(len(session.tokens))
    plots.tiers_of_text(session)
    with pytest.raises(ValueError, match="ledger"):
        plots.tiers_over_time(model.session(ledger=False))
    matplotlib.pyplot.close("all")


def test_pebbles_problems_are_those_of_an_evaluation(model):
    problem = ebb.pebble_problem(seed=3, number=1)
    answers = ebb.eval(model, problems=2, seed=3)
    result = model.session().chat(problem.question, temperature=0).run()
    assert result.text == answers.text[1]
    assert problem.answer in result.answer


def test_the_attention_of_a_thought_is_recorded_and_drawn(model):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    prompt = model.tokenize("First Ada gets three.")

    def thought(budget):
        log = ebb.AttentionLog()
        session = model.session(policy="attention", budget=budget, scorer=lambda: log, **OPTIONS)
        session.generate(prompt, max_tokens=100, temperature=0, ignore_eos=True).run()
        return log, session

    log, session = thought("100%")
    shares = log.matrix()
    assert shares.shape == (len(session.tokens) - len(prompt), len(session.tokens)) and len(shares) > 90
    np.testing.assert_allclose(np.nansum(shares, axis=1), 1, rtol=1e-3)
    # A token attends to those before it and to itself.
    assert (np.isnan(shares) == ~np.tri(*shares.shape, len(prompt), dtype=bool)).all()
    axes = plots.attention(log)
    assert axes.images[0].get_array().shape == shares.shape
    log, session = thought("25%")
    evicted = np.setdiff1d(np.arange(len(session.tokens)), session.visible_positions())
    assert len(evicted) > 20 and np.isnan(log.matrix()[-1, evicted[:20]]).all()
    plots.attention(log)
    with pytest.raises(ValueError, match="no steps"):
        plots.attention(ebb.AttentionLog())
    matplotlib.pyplot.close("all")
