"""Fidelity, importance, probabilities of given text, the judge, and models by name."""

import json
import os
import stat

import numpy as np
import pytest

import ebb

from conftest import PROMPT


def test_log_probabilities_of_a_prompt_are_those_of_decoding(engine):
    tokens = engine.model.tokenize(PROMPT)
    read = engine.session().log_probabilities(PROMPT)
    session = engine.session()
    session.prefill(tokens[:1])
    expected = [np.nan]
    for token in tokens[1:]:
        logits = session.logits.astype(np.float64)
        expected.append(logits[token] - logits.max() - np.log(np.exp(logits - logits.max()).sum()))
        session.decode(token)
    np.testing.assert_allclose(read, expected, atol=2e-2)
    # The next text begins after the tokens that are there.
    halves = engine.session()
    parts = [halves.log_probabilities(tokens[:9]), halves.log_probabilities(tokens[9:])]
    np.testing.assert_allclose(np.concatenate(parts), read, atol=2e-2)
    assert np.isnan(parts[0][0]) and np.isfinite(parts[1]).all()


def test_fidelity_of_a_policy_and_of_exact_tiers(model):
    text = model.session().generate(PROMPT, max_tokens=200, temperature=0, ignore_eos=True).run().text
    usual = dict(window_tokens=150, prompt_tokens=16, window=16, interval=16)
    exact = ebb.fidelity(model, text, t0="30%", t1="host", **usual)
    assert exact.mean_kl.value == 0 and exact.top1.value == 1 and exact.windows >= 1 and exact.tokens > 50
    evicting = ebb.fidelity(model, text, policy="streaming", budget=24, window_tokens=150, prompt_tokens=16)
    assert evicting.mean_kl.value > 0
    assert evicting.mean_kl.low <= evicting.mean_kl.value <= evicting.mean_kl.high
    mine = ebb.fidelity(model, text, scorer=ebb.Attention, budget="25%", **usual)
    theirs = ebb.fidelity(model, text, policy="attention", budget="25%", **usual)
    assert mine.mean_kl == theirs.mean_kl and mine.mean_kl.value > 0
    with pytest.raises(TypeError, match="polcy"):
        ebb.fidelity(model, text, polcy="h2o")
    with pytest.raises(ebb.InvalidArgument, match="window_tokens"):
        ebb.fidelity(model, text, window_tokens=4)


class Recorder(ebb.Scorer):
    """Keeps the keys and values that the engine computed."""

    needs = ebb.Needs(keys=True, values=True, mass="sum")

    def begin(self):
        self.keys, self.values = [], []

    def observe(self, group, positions, mass, keys, values):
        self.keys.append(np.array(keys))
        self.values.append(np.array(values))
        if mass is not None:
            self[group] += mass


def test_rows_of_a_cache_are_those_that_were_computed(model):
    recorders = []

    def make():
        recorders.append(Recorder())
        return recorders[-1]

    session = model.session(scorer=make, budget="25%", window=16, interval=16)
    session.generate(PROMPT, max_tokens=120, temperature=0, ignore_eos=True).run()
    keys, values = (np.concatenate(parts, axis=1) for parts in (recorders[-1].keys, recorders[-1].values))
    shape = model.shape
    for layer in range(shape.num_layers):
        for head in range(shape.kv_heads(layer)):
            rows = session.rows(layer, head)
            assert (rows.positions == session.visible_positions()).all() and set(rows.tiers) == {0}
            assert len(rows.positions) < len(session.tokens) and rows.keys.shape == (len(rows.positions), shape.head_dim)
            np.testing.assert_array_equal(rows.keys, keys[layer, rows.positions, head].astype(np.float16))
            np.testing.assert_array_equal(rows.values, values[layer, rows.positions, head].astype(np.float16))
    with pytest.raises(ebb.InvalidArgument, match="layer: expected 0 to"):
        session.rows(99)
    with pytest.raises(ebb.InvalidArgument, match="kv_head"):
        session.rows(0, -1)
    assert model.session().rows(0).keys.shape == (0, shape.head_dim)


@pytest.mark.parametrize("tiers", [dict(t1="host"), dict(t1="file")])
def test_rows_of_every_tier_are_read(model, tiers):
    def read(**options):
        session = model.session(**options)
        session.generate(PROMPT, max_tokens=200, temperature=0, ignore_eos=True).run()
        return session, session.rows(1, 0)

    usual = dict(window=16, interval=16)
    _, full = read()
    session, exact = read(t0="30%", **tiers, **usual)
    assert set(exact.tiers) == {0, 1} and (exact.positions == full.positions).all()
    np.testing.assert_array_equal(exact.keys, full.keys)
    np.testing.assert_array_equal(exact.values, full.values)
    before = session.logits_hash
    assert session.rows(0).positions.size and session.logits_hash == before
    session.generate(max_tokens=3, temperature=0, ignore_eos=True).run()
    # Keys of the first layer follow from the tokens alone.
    session, _ = read(t0="30%", t2="50%:int8", **tiers, **usual)
    mixed = session.rows(0, 0)
    full = model.session()
    full.prefill(session.tokens.tolist())
    full = full.rows(0, 0)
    assert set(mixed.tiers) == {0, 1, 2}
    np.testing.assert_allclose(mixed.keys, full.keys, atol=0.05 * np.abs(full.keys).max())
    compressed = mixed.tiers == 2
    assert (mixed.keys[compressed] != full.keys[compressed]).any()
    assert mixed.tiers[-8:].max() < 2 and (mixed.positions == full.positions).all()
    np.testing.assert_allclose(mixed.keys[-8:], full.keys[-8:], atol=0.01)


def test_importance_by_occlusion(model):
    pytest.importorskip("pandas")
    study = ebb.importance(model, problems=3, window=64, stride=64, boundary="That is all.")
    assert len(study.labels) == 3 and set(study.labels.outcome) <= {"labelled", "wrong", "no thought", "not repeated"}
    labelled = study.labels[study.labels.outcome == "labelled"]
    assert len(labelled) > 0
    first = labelled.iloc[0]
    assert len(first.important) == first.boundary and set(np.unique(first.important)) <= {0, 1}
    assert {"signal", "within", "pooled", "trend"} <= set(study.signals.columns) and len(study.signals) > 10


@pytest.mark.parametrize("text, reference, kind, outcome, extracted", [
    ("3 + 4 = 7, so the answer is 7.", "7", "number", "right", "7"),
    (r"So \boxed{8}", "7", "number", "wrong", "8"),
    ("I do not know", "7", "number", "no_answer", ""),
    ("", "7", "number", "empty", ""),
    ("The answer is (B).", "B", "option", "right", "B"),
    ("<think>not three</think>four", "four", "word", "right", "four"),
])
def test_any_text_is_judged(text, reference, kind, outcome, extracted):
    verdict = ebb.judge(text, reference, kind, ["three", "four"] if kind == "option" else ())
    assert (verdict.outcome, verdict.extracted, verdict.correct) == (outcome, extracted, outcome == "right")


@pytest.mark.parametrize("rules, extracted, rule", [("cascade", "12", "phrase"), ("last", "15", "boxed"),
                                                    ("boxed", "15", "boxed")])
def test_rules_select_the_mark_of_an_answer(rules, extracted, rule):
    verdict = ebb.judge(r"I guess that the answer is 12. No: we get \boxed{15}", "15", rules=rules)
    assert (verdict.extracted, verdict.rule, verdict.correct) == (extracted, rule, extracted == "15")
    with pytest.raises(ebb.InvalidArgument, match='answer_rules: expected cascade, last or boxed, found "first"'):
        ebb.judge("1", "1", rules="first")


def test_formulas_are_judged_by_value():
    pytest.importorskip("math_verify")
    assert ebb.judge(r"So it is $\boxed{0.5}$.", r"\frac{1}{2}", "formula").correct
    with pytest.raises(ebb.InvalidArgument, match="kind: expected number, formula, option or word"):
        ebb.judge("1", "1", "poem")


def test_models_by_name(tmp_path, monkeypatch):
    assert ebb.Model("pebble-dms").session(policy="dms").policy == "dms"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("EBB_PROGRAM", raising=False)
    with pytest.raises(ebb.NotFound, match="ebb pull hf:org/repo"):
        ebb.Model("hf:org/repo")
    with pytest.raises(ebb.NotFound, match="no file"):
        ebb.Model("nowhere.gguf")
    # The package asks the program `ebb` for the path of a model's name.
    program = tmp_path / "ebb"
    answer = json.dumps({"name": "hf:org/repo", "path": ebb.find_model("pebble")})
    program.write_text(f'#!/bin/sh\ntest "$1 $2 $3" = "pull --json hf:org/repo" || exit 1\necho \'{answer}\'\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("EBB_PROGRAM", str(program))
    assert ebb.Model("hf:org/repo").description.startswith("pebble")
    with pytest.raises(ebb.NotFound, match="there is no model qwen-of-nobody"):
        ebb.Model("qwen-of-nobody")


def test_a_profile_is_that_of_the_program(model, program, monkeypatch):
    monkeypatch.setenv("EBB_PROGRAM", str(program))
    record = ebb.profile(model, "First Ada gets three.", max_tokens=40, transfer_tokens=0, t0="50%", t1="host", window=16)
    assert record["threads"] >= 1 and record["model"] == model.description
    with pytest.raises(ebb.InvalidArgument, match="scorer: .*built-in"):
        ebb.profile(model, "x", scorer=ebb.Attention)
    with pytest.raises(ebb.InvalidArgument, match="polcy"):
        ebb.profile(model, "x", polcy="h2o")
    monkeypatch.setenv("EBB_PROGRAM", "/nonexistent/ebb")
    with pytest.raises(ebb.NotFound, match="ebb-lab"):
        ebb.profile(model, "x")
