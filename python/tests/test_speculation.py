"""Guesses of sessions: the text, the logits and the rows are those of plain decoding."""

import pytest

import ebb

PROMPT = [1, 5, 9, 13, 2, 7] * 8


@pytest.mark.parametrize("options", [{}, dict(kv_type="q4"), dict(t0="30%", t1="host"),
                                     dict(policy="attention", budget="25%", window=16, interval=16)])
def test_guesses_change_no_bit(options):
    model = ebb.Model("pebble", dequantize=True)
    answers = {}
    for speculate in ("off", "auto", "lookup"):
        session = model.session(speculate=speculate, **options)
        text = "".join(token.text for token in session.generate(PROMPT, max_tokens=200, ignore_eos=True))
        answers[speculate] = (text, session.logits_hash, session.visible_positions(0).tolist())
        report = session.speculation_report
        assert report["obstacle"] == "" and report["accepted"] <= report["drafted"]
        assert speculate != "off" or report["drafted"] == 0
    assert answers["off"] == answers["auto"] == answers["lookup"]


def test_half_precision_guesses_and_changes_no_bit():
    answers = {}
    for speculate in ("off", "auto"):
        session = ebb.Model("pebble").session(speculate=speculate)
        text = "".join(token.text for token in session.generate(PROMPT, max_tokens=200, ignore_eos=True))
        assert session.speculation_report["obstacle"] == ""
        answers[speculate] = (text, session.logits_hash)
    assert answers["off"] == answers["auto"]


def test_a_draft_model_guesses_and_changes_no_bit():
    model = ebb.Model("pebble", dequantize=True)
    answers = {}
    for speculate in ("off", "model"):
        engine = ebb.Engine(model, draft_model=ebb.Model("pebble"))
        session = engine.session(speculate=speculate)
        text = "".join(token.text for token in session.generate(PROMPT, max_tokens=100, ignore_eos=True))
        answers[speculate] = (text, session.logits_hash)
    assert answers["off"] == answers["model"]


def test_other_sources_are_refused():
    with pytest.raises(ebb.InvalidArgument, match="speculate: expected off, auto, lookup, model, mtp, eagle3, assistant or dflash"):
        ebb.Model("pebble").session(speculate="eagle")
    with pytest.raises(ebb.InvalidArgument, match="without its MTP layer"):
        ebb.Model("pebble").session(speculate="mtp")
