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


def test_half_precision_decodes_plainly_and_says_why():
    session = ebb.Model("pebble").session()
    "".join(token.text for token in session.generate(PROMPT, max_tokens=20, ignore_eos=True))
    report = session.speculation_report
    assert report["drafted"] == 0 and "weights of type f16" in report["obstacle"]


def test_other_sources_are_refused():
    with pytest.raises(ebb.InvalidArgument, match="speculate: expected auto, off or lookup"):
        ebb.Model("pebble").session(speculate="mtp")
