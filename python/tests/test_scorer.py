"""Policies in Python: the same rows as the built-in ones, the lifetime of views, errors."""

import gc

import numpy as np
import pytest

import ebb
from conftest import PROMPT

#: Decisions begin early enough for a short text.
OFTEN = dict(window=16, interval=8)


def step_by_step(ours, theirs, tokens, max_tokens=200):
    """Generates with both, held against each other after each step; how many steps evicted."""
    ours.prefill(tokens)
    theirs.prefill(tokens)
    evicting = 0
    generations = [s.generate(None, temperature=0, max_tokens=max_tokens, ignore_eos=True)
                   for s in (ours, theirs)]
    for a, b in zip(*generations, strict=True):
        assert a.id == b.id
        assert a.rows_evicted == b.rows_evicted
        assert a.moves == b.moves
        evicting += a.rows_evicted > 0
    for group in range(ours.num_groups):
        assert ours.visible_positions(group).tolist() == theirs.visible_positions(group).tolist()
    assert ours.logits_hash == theirs.logits_hash
    return evicting


@pytest.mark.parametrize("granularity", ["token", "layer", "head"])
@pytest.mark.parametrize("scorer, policy, options", [
    (ebb.Attention, "attention", OFTEN),
    (ebb.LagKey, "lag_key", {}),
])
def test_evicts_exactly_what_the_built_in_one_does(engine, scorer, policy, options, granularity):
    options = dict(options, policy=policy, budget="25%", granularity=granularity)
    evicting = step_by_step(engine.session(scorer=scorer, **options), engine.session(**options),
                            engine.model.tokenize(PROMPT))
    assert evicting >= 20


@pytest.mark.parametrize("scorer, policy", [(ebb.Attention, "attention"), (ebb.LagKey, "lag_key")])
def test_the_same_on_the_default_model(default_model, scorer, policy):
    engine = ebb.Engine(default_model, threads=2)
    options = dict(policy=policy, budget="25%", granularity="layer", window=16, interval=8)
    tokens = default_model.tokenize("The lighthouse keeper learns, tide by tide, that " * 20)
    assert step_by_step(engine.session(scorer=scorer, **options), engine.session(**options), tokens,
                        96) >= 8


@pytest.mark.parametrize("scorer, name", [(ebb.Attention, "attention"), (ebb.LagKey, "lag_key")])
def test_tiers_move_the_same_rows(model, scorer, name):
    tiers = dict(t0="40%", t1="host", t2="30%", evict="10%", window=16, interval=8)
    engine = ebb.Engine(model, threads=2, **{k: tiers[k] for k in ("t0", "t1", "t2", "evict")})
    assert step_by_step(engine.session(policy=name, scorer=scorer, **tiers),
                        engine.session(policy=name, **tiers), model.tokenize(PROMPT)) > 0


class Newest(ebb.Scorer):
    """As `recency`: the position."""

    def scores(self, group):
        return np.arange(len(self[group]))  # int64: converted


def test_scores_of_another_type_are_converted(engine):
    options = dict(policy="attention", budget="25%", **OFTEN)
    assert step_by_step(engine.session(scorer=Newest, **options),
                        engine.session(**dict(options, scorer="recency")),
                        engine.model.tokenize(PROMPT)) >= 20


class Watching(ebb.Scorer):
    needs = ebb.Needs(mass="query_head", keys=True, values=True, recent_queries=3, hidden_layers=[1],
                      mass_in_prefill=True)

    def observe(self, group, positions, mass, keys, values):
        shape, step = self.shape, self.step
        rows = len(positions)
        assert positions.dtype == np.int32 and (np.diff(positions) > 0).all()
        assert positions[-1] == step.first_position + step.num_tokens - 1
        assert mass.shape[1] == rows == len(self[group])
        # Each query's probabilities add up to 1.
        np.testing.assert_allclose(mass.sum(axis=1), step.num_tokens, rtol=1e-3)
        heads = {"token": shape.num_kv_heads, "layer": shape.num_kv_heads, "head": 1}[self.granularity]
        layers = shape.num_layers if self.granularity == "token" else 1
        assert keys.shape == values.shape == (layers, step.num_tokens, heads, shape.head_dim)
        assert np.abs(keys).max() > 0
        queries = step.recent_queries(shape.num_layers - 1)
        assert queries.shape[1:] == (shape.num_q_heads, shape.head_dim) and 1 <= len(queries) <= 3
        assert step.hidden(0).shape == (step.num_tokens, shape.embed_dim)
        for view in (positions, mass, keys, values, queries):
            assert not view.flags.writeable and not view.flags.owndata
            with pytest.raises(ValueError):
                view[...] = 0
        type(self).observed += 1


@pytest.mark.parametrize("granularity", ["token", "layer", "head"])
def test_what_a_scorer_is_shown(engine, granularity):
    Watching.observed = 0
    session = engine.session(policy="attention", scorer=Watching, budget="25%",
                             granularity=granularity, **OFTEN)
    session.generate(PROMPT, temperature=0, max_tokens=40).run()
    assert Watching.observed >= 40 * session.num_groups


def test_keys_at_head_granularity_are_those_of_the_head(engine):
    seen = {}

    def keep(name):
        class Keys(ebb.Scorer):
            needs = ebb.Needs(keys=True)

            def observe(self, group, positions, mass, keys, values):
                seen.setdefault(name, {})[group] = keys.copy()

        return Keys

    for granularity in ("token", "layer", "head"):
        engine.session(policy="attention", budget="25%", scorer=keep(granularity),
                       granularity=granularity, **OFTEN).prefill(PROMPT)
    shape = engine.model.shape
    for layer in range(shape.num_layers):
        assert (seen["layer"][layer][0] == seen["token"][0][layer]).all()
        for head in range(shape.num_kv_heads):
            of_head = seen["head"][layer * shape.num_kv_heads + head][0, :, 0]
            assert (of_head == seen["layer"][layer][0, :, head]).all()


def keeping(how):
    class Keeps(ebb.Scorer):
        needs = ebb.Needs(mass="sum", keys=True)
        kept = []

        def observe(self, group, positions, mass, keys, values):
            if mass is not None and len(self[group]) > 40:
                self.kept.append(how(positions=positions, mass=mass, keys=keys))

    return Keeps


@pytest.mark.parametrize("how", [
    lambda mass, **_: mass,
    lambda mass, **_: mass[3:],
    lambda mass, **_: mass[3:].reshape(-1)[::2],
    lambda mass, **_: memoryview(mass),
    lambda mass, **_: mass.base,
    lambda keys, **_: keys.transpose(1, 0, 2, 3),
    lambda keys, **_: iter(keys),
    lambda positions, **_: positions,
    lambda mass, **_: np.asarray(mass),
    lambda mass, **_: (lambda: mass),
])
def test_a_view_that_is_kept_beyond_its_step_raises(engine, how):
    scorer = keeping(how)
    session = engine.session(policy="attention", budget="50%", scorer=scorer, **OFTEN)
    with pytest.raises(ebb.ViewKept, match="Keeps"):
        session.generate(PROMPT, temperature=0, max_tokens=100).run()
    with pytest.raises(ebb.SessionFailed):
        session.generate(None)
    with pytest.raises(ebb.SessionFailed):
        session.truncate(0)
    # What was kept shows memory that is still there, also when nothing else keeps the session.
    del session
    gc.collect()
    for kept in scorer.kept:
        while callable(kept) and not isinstance(kept, np.ndarray):
            kept = kept()
        for part in kept if hasattr(kept, "__next__") else [kept]:
            assert np.isfinite(np.asarray(part)).all()


def test_a_copy_may_be_kept_and_so_may_garbage(engine):
    class Copies(ebb.Scorer):
        needs = ebb.Needs(mass="sum")

        def observe(self, group, positions, mass, keys, values):
            self.last = None if mass is None else np.array(mass)
            cycle = [mass, positions]
            cycle.append(cycle)

    session = engine.session(policy="attention", budget="50%", scorer=Copies, **OFTEN)
    session.generate(PROMPT, temperature=0, max_tokens=40).run()


def test_a_step_cannot_be_read_when_it_is_over(engine):
    class KeepsStep(ebb.Scorer):
        needs = ebb.Needs(mass="sum")
        steps = []

        def observe(self, group, positions, mass, keys, values):
            self.steps.append(self.step)

    session = engine.session(policy="attention", budget="50%", scorer=KeepsStep, **OFTEN)
    session.prefill(PROMPT)
    with pytest.raises(ebb.ViewExpired):
        KeepsStep.steps[0].num_tokens


@pytest.mark.parametrize("method", ["begin", "append", "observe", "retain", "scores",
                                    "end_first_prefill"])
def test_an_exception_in_a_scorer_ends_the_generation_with_it(engine, method):
    error = LookupError("on purpose")

    def fail(self, *args):
        raise error

    scorer = type("Fails", (ebb.Attention,), {method: fail})
    with pytest.raises(LookupError) as raised:
        session = engine.session(policy="attention", budget="25%", scorer=scorer, **OFTEN)
        session.generate(PROMPT, temperature=0, max_tokens=100).run()
    assert raised.value is error
    if method != "begin":
        rows = session.memory["rows"][0]
        with pytest.raises(ebb.SessionFailed):
            session.decode(5)
        assert session.memory["rows"][0] == rows


def test_an_exception_while_rows_are_forgotten_comes_at_once(engine):
    class Fails(ebb.Attention):
        def retain(self, group, kept):
            raise LookupError("on purpose")

    session = engine.session(policy="attention", budget="25%", scorer=Fails, **OFTEN)
    session.prefill(PROMPT)
    with pytest.raises(LookupError, match="on purpose"):
        session.truncate(5)


@pytest.mark.parametrize("scores, message", [
    (lambda n: np.zeros(n + 1), "rows"),
    (lambda n: np.zeros(n - 1, np.float32), "rows"),
    (lambda n: np.full(n, np.nan, np.float32), "finite"),
    (lambda n: np.full(n, np.inf), "finite"),
    (lambda n: ["a"] * n, "convert"),
    (lambda n: None, "float|rows|number"),
])
def test_wrong_scores_are_refused(engine, scores, message):
    class Wrong(ebb.Scorer):
        def scores(self, group):
            return scores(len(self[group]))

    session = engine.session(policy="attention", budget="25%", scorer=Wrong, **OFTEN)
    with pytest.raises((ValueError, TypeError, ebb.ScorerError), match=message):
        session.generate(PROMPT, temperature=0, max_tokens=100).run()
    assert session.memory["rows_evicted"] == 0


def test_a_policy_cannot_step_its_own_engine(engine):
    class Reenters(ebb.Scorer):
        needs = ebb.Needs(mass="sum")

        def observe(self, group, positions, mass, keys, values):
            engine.session().prefill("no")

    session = engine.session(policy="attention", budget="25%", scorer=Reenters, **OFTEN)
    with pytest.raises(ebb.InvalidArgument, match="engine"):
        session.prefill(PROMPT)
    engine.session().prefill("yes")


def test_forks_and_files_have_the_scorers_state(engine, tmp_path):
    options = dict(policy="attention", scorer=ebb.Attention, budget="25%", **OFTEN)
    session = engine.session(**options)
    session.generate(PROMPT, temperature=0, max_tokens=60).run()
    fork = session.fork()
    second = fork.fork()
    session.save(tmp_path / "file")
    resumed = engine.resume(tmp_path / "file", **options)
    for s in (session, fork, second, resumed):
        s.generate(None, temperature=0, max_tokens=60, ignore_eos=True).run()
    assert len({s.logits_hash for s in (session, fork, second, resumed)}) == 1
    with pytest.raises(ebb.Unsupported, match="save_state"):
        other = engine.session(**dict(options, scorer=Newest))
        other.prefill(PROMPT)
        other.fork()


class Streaming(ebb.Placement):
    """The first four rows and the newest 60 stay."""

    needs_scores = False

    def place(self, facts):
        rows = len(facts.positions)
        return range(4, rows - 60)


def test_a_placement_of_ones_own(engine):
    session = engine.session(placement=Streaming)
    session.generate(PROMPT, temperature=0, max_tokens=100, ignore_eos=True).run()
    end = len(session.tokens)
    assert session.visible_positions(0).tolist() == [0, 1, 2, 3, *range(end - 60, end)]
    theirs = engine.session(policy="streaming", sinks=4, budget=64)
    theirs.generate(PROMPT, temperature=0, max_tokens=100, ignore_eos=True).run()
    assert theirs.visible_positions(0).tolist() == session.visible_positions(0).tolist()


def test_a_placement_may_move_rows_between_tiers(model):
    class OldOnesDown(ebb.Placement):
        needs_scores = False

        def place(self, facts):
            tiers = facts.tiers
            return [(row, 1) for row in range(4, len(facts.positions) - 40)
                    if len(tiers) == 0 or tiers[row] == 0]

    session = model.session(threads=2, t1="host", placement=OldOnesDown)
    text = session.generate(PROMPT, temperature=0, max_tokens=100, ignore_eos=True).run().text
    full = model.session(threads=2)
    assert full.generate(PROMPT, temperature=0, max_tokens=100, ignore_eos=True).run().text == text
    assert session.logits_hash == full.logits_hash
    assert session.tiers(0).tolist().count(1) >= 60


@pytest.mark.parametrize("moves, message", [
    ([10**6], "no row"), ([-1], "no row"), ([5, 5], "twice"), ([(5, 1)], "tiers"), ([(5, 4)], "tier"),
    (["five"], "five"), (5, "iterable"),
])
def test_wrong_moves_are_refused(engine, moves, message):
    class Wrong(ebb.Placement):
        def place(self, facts):
            return moves

    session = engine.session(placement=Wrong)
    with pytest.raises((ValueError, TypeError, ebb.ScorerError), match=message):
        session.generate(PROMPT, temperature=0, max_tokens=5).run()
    assert session.memory["rows_evicted"] == 0


def test_facts_are_over_with_their_call(engine):
    class Keeps(ebb.Placement):
        kept = []

        def due(self, facts, num_rows):
            self.kept.append(facts)
            return False

    session = engine.session(placement=Keeps)
    session.generate(PROMPT, temperature=0, max_tokens=3).run()
    with pytest.raises(ebb.ViewExpired):
        Keeps.kept[0].positions

    class KeepsArray(ebb.Placement):
        kept = []

        def place(self, facts):
            self.kept.append(facts.positions)

    with pytest.raises(ebb.ViewKept):
        engine.session(placement=KeepsArray).generate(PROMPT, temperature=0, max_tokens=3).run()


def test_refusals_of_a_placement_come_before_the_prompt(engine):
    class Refuses(ebb.Placement):
        def check(self, facts):
            return "too little for this prompt"

    session = engine.session(placement=Refuses)
    with pytest.raises(ebb.InvalidArgument, match="too little"):
        session.prefill(PROMPT)
    assert len(session.tokens) == 0
