"""Options that do not exist are refused everywhere, and errors about wrong values name the expected ones."""

import asyncio

import numpy as np
import pytest

import ebb

from conftest import PROMPT

USUAL = {"window": 16, "interval": 16}


def test_unknown_options_are_refused(model, engine, tmp_path):
    session = engine.session()
    for call in (lambda: session.chat("x", max_token=3), lambda: session.chat("x", temprature=0),
                 lambda: session.generate("x", max_token=3), lambda: model.session(polcy="h2o"),
                 lambda: engine.session(polcy="h2o"), lambda: engine.resume(tmp_path / "x", polcy="h2o"),
                 lambda: engine.count_needs(3, 9, fooo=1), lambda: ebb.fit(model, "1GiB", max_token=500)):
        with pytest.raises(TypeError, match="max_token|temprature|polcy|fooo"):
            call()
    with pytest.raises(ebb.InvalidArgument, match='windw.*do you mean "window"'):
        ebb.eval(problems=1, settings=[{"windw": 16}])
    with pytest.raises(ebb.InvalidArgument, match="separate list, not a member of settings"):
        ebb.eval(problems=1, settings=[{"budget": "25%"}])
    with pytest.raises(ebb.InvalidArgument, match="prompt_style: expected chat or raw"):
        ebb.eval(problems=1, prompt_style="rw")
    with pytest.raises(ebb.InvalidArgument, match="problems"):
        ebb.eval(problems=-3)
    with pytest.raises(ebb.InvalidArgument, match="problems"):
        ebb.eval(problems=0)
    assert len(session.tokens) == 0


def test_names_of_signatures_are_those_of_the_options():
    import inspect

    from ebb.engine import GenerateOptions, ModelSessionOptions, SessionOptions

    def keywords(function):
        return {name for name, one in inspect.signature(function).parameters.items()
                if one.kind is inspect.Parameter.KEYWORD_ONLY}

    assert set(SessionOptions.__annotations__) == keywords(ebb.Engine.session)
    assert set(GenerateOptions.__annotations__) == keywords(ebb.Session.generate)
    engine = {"threads", "kv_type", "kv_cap", "device", "prefill_chunk", "draft_model", "draft_kv_type"}
    assert set(ModelSessionOptions.__annotations__) == set(SessionOptions.__annotations__) | engine
    assert engine < keywords(ebb.Engine.__init__)


class Newest(ebb.Scorer):
    needs = ebb.Needs(mass="sum")

    def observe(self, group, positions, mass, keys, values):
        self[group] = positions


def test_a_scorer_alone_decides_as_attention_does(model):
    session = model.session(scorer=Newest, budget="25%", **USUAL)
    session.generate(PROMPT, max_tokens=120, temperature=0, ignore_eos=True).run()
    assert session.policy.startswith("attention+scorer") and session.memory["rows_evicted"] > 0
    # It never evicts nothing without a word.
    with pytest.raises(ebb.InvalidArgument, match="budget"):
        model.session(scorer=Newest)


def test_a_policy_keeps_the_tiers_of_its_engine(model):
    engine = ebb.Engine(model, t0="30%", t1="host")
    session = engine.session(policy="lag_kv", evict="10%", **USUAL)
    assert session.policy == "lag_kv"
    session.generate(PROMPT, max_tokens=150, temperature=0, ignore_eos=True).run()
    assert session.memory["rows"][1] > 0 and session.memory["rows_evicted"] > 0
    assert engine.session(policy="attention").policy == "attention"
    # A budget evicts, and the tiers place what is left.
    session = engine.session(policy="attention", budget="25%", **USUAL)
    session.generate(PROMPT, max_tokens=150, temperature=0, ignore_eos=True).run()
    assert session.memory["rows"][1] > 0 and session.memory["rows_evicted"] > 0


def test_an_observer_that_needs_nothing_is_told(model):
    class Blind(ebb.Scorer):
        def observe(self, group, positions, mass, keys, values):
            raise RuntimeError("never")

    with pytest.warns(UserWarning, match="Blind has an observe.*needs"):
        model.session(policy="attention", scorer=Blind, budget="25%")


def test_two_generations_of_a_session_are_refused(engine):
    session = engine.session()
    first = session.generate(PROMPT, max_tokens=8, temperature=0)
    tokens = [next(first) for _ in range(3)]
    for second in (session.generate, lambda: session.chat("x")):
        with pytest.raises(ebb.InvalidArgument, match="has not ended"):
            second()
    tokens += list(first)
    assert "".join(map(str, tokens)) == first.result.text
    one = session.generate(max_tokens=2, temperature=0)
    one.close()
    assert session.generate(max_tokens=2, temperature=0).run().generated_tokens <= 2


def placement(answer):
    class Answers(ebb.Placement):
        needs_scores = False

        def place(self, facts):
            return answer(facts) if facts.next_position > 40 else None

    return Answers


@pytest.mark.parametrize("answer, words", [
    (lambda facts: np.arange(len(facts.positions)) < 3, "Boolean.*flatnonzero"),
    (lambda facts: [True, False], "Boolean"),
    (lambda facts: [5.7], "indices of rows, found 5.7"),
    (lambda facts: [(1, 2, 3)], "expected .row, tier."),
    (lambda facts: [(1, 9)], "expected .row, tier."),
    (lambda facts: ["row"], "found 'row'"),
])
def test_answers_of_placements_that_are_no_rows(model, answer, words):
    session = model.session(placement=placement(answer))
    with pytest.raises(ebb.ScorerError, match=words):
        session.generate(PROMPT, max_tokens=60, temperature=0, ignore_eos=True).run()


def test_answers_that_are_no_scores_and_no_truth(model):
    class Square(ebb.Scorer):
        def scores(self, group):
            return np.zeros((2, 3))

    session = model.session(scorer=Square, budget="25%", **USUAL)
    with pytest.raises(ebb.ScorerError, match=r"shape \(2, 3\); expected one number per row"):
        session.generate(PROMPT, max_tokens=90, temperature=0, ignore_eos=True).run()

    class Never(ebb.Placement):
        def due(self, facts, num_rows):
            return "never"

    session = model.session(placement=Never)
    with pytest.raises(ebb.ScorerError, match="due.*expected True or False, found 'never'"):
        session.generate(PROMPT, max_tokens=9, temperature=0).run()


def test_values_of_other_types_are_told_with_what_is_expected(model, engine, tmp_path):
    with pytest.raises(TypeError, match="t0: expected a text, found 0.3"):
        model.session(t0=0.3)
    with pytest.raises(TypeError, match="window: expected a whole number, found 'x'"):
        model.session(policy="streaming", budget=64, window="x")
    with pytest.raises(ebb.InvalidArgument, match="scorer: .*an object of Newest: give Newest itself"):
        model.session(scorer=Newest(), budget="25%")
    with pytest.raises(ebb.InvalidArgument, match="placement: expected"):
        model.session(placement=3)
    session = engine.session(policy="streaming", budget=64)
    session.prefill("First Ada gets three.")
    session.save(tmp_path / "saved")
    assert engine.resume(tmp_path / "saved", policy="streaming", budget=64).logits_hash == session.logits_hash
    with pytest.raises(ebb.InvalidArgument, match="kv_type.*t2"):
        ebb.Engine(model, kv_type="q4", t2="10%")


def test_compressed_rows_are_a_type_of_rows_everywhere(model):
    pytest.importorskip("pandas")
    answers = ebb.eval(model, problems=1, max_tokens=150, settings=[{"kv_type": "q4"}, {"t1": "none", "t2": "old:int4"}])
    assert len(answers) == 1 and answers.tiers[0] == "t2=old:int4"
    assert ebb.fit(model, "1GiB", kv_type="q4").options["t2"] == "old:int4"
    session = ebb.Engine(model, kv_type="q4").session()
    session.generate(PROMPT, max_tokens=200, temperature=0, ignore_eos=True).run()
    assert session.memory["rows"][2] > 0


def test_sessions_say_what_they_are_and_close(model):
    engine = ebb.Engine(model, threads=1)
    assert "1 threads" in repr(engine)
    with engine.session() as session:
        session.prefill("First Ada gets three.")
        assert len(session) == len(session.tokens) > 3 and session
        assert f"{len(session)} tokens" in repr(session) and "<table>" in session._repr_html_()
        generation = session.generate(max_tokens=3, temperature=0)
        assert repr(generation) == "<ebb.Generation>"
        generation.run()
        assert "ended" in repr(generation)
    assert repr(session) == "<ebb.Session, closed>"
    with pytest.raises(ebb.InvalidArgument, match="closed"):
        session.prefill("x")


def test_generations_are_iterated_in_an_event_loop(engine):
    async def collect():
        return [str(token) async for token in engine.session().generate(PROMPT, max_tokens=6, temperature=0)]

    assert "".join(asyncio.run(collect())) == engine.session().generate(PROMPT, max_tokens=6, temperature=0).run().text
