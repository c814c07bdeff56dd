"""Models, engines, sessions and generations."""

import gc
import os
import signal
import threading
import time
import weakref

import numpy as np
import pytest

import ebb
from conftest import PROMPT, PUZZLE


def greedy(session, prompt=PROMPT, **options):
    options.setdefault("max_tokens", 300)
    return session.generate(prompt, temperature=0, **options)


def test_a_file_for_rows_changes_no_bit(model):
    full = model.session(threads=2)
    tiered = model.session(threads=2, t0="30%", t1="file", window=16, interval=16)
    assert greedy(full).run().text == greedy(tiered).run().text
    assert full.logits_hash == tiered.logits_hash
    assert tiered.memory["rows"][1] > 0 == full.memory["rows"][1]
    assert sum(tiered.memory["rows"]) == sum(full.memory["rows"])


def test_pieces_of_text_are_the_answer(engine):
    generation = greedy(engine.session(), max_tokens=120)
    tokens = list(generation)
    assert "".join(t.text for t in tokens) == generation.result.text
    assert [t.id for t in tokens if t.id is not None] == list(
        engine.model.tokenize(generation.result.text, add_bos=False)
    )
    assert generation.result.generated_tokens == 120
    assert generation.result.finish_reason == "length"


def test_moves_are_what_the_tiers_became(model):
    session = model.session(threads=2, t0="30%", t1="file", t2="30%", evict="20%", window=16,
                            interval=16)
    session.prefill(PROMPT)
    tiers = {}
    seen = set()
    for token in greedy(session, None):
        for move in token.moves:
            assert tiers.get((move.group, move.position), 0) == move.source
            tiers[move.group, move.position] = move.target
            seen.add((move.source, move.target))
    assert {target for _, target in seen} >= {1, 2, 3}
    for group in range(session.num_groups):
        now = session.tiers(group)
        assert [tiers.get((group, p), 0) for p in range(len(now))] == now.tolist()
        assert np.flatnonzero(now != 3).tolist() == session.visible_positions(group).tolist()
    assert session.memory["rows_evicted"] > 0
    by_step = session.tiers_over_time()
    assert by_step.shape[1] == 4
    assert by_step[-1, 3] == session.memory["rows_evicted"]


def test_no_moves_without_a_ledger(engine):
    session = engine.session(policy="streaming", budget=64, ledger=False)
    tokens = list(greedy(session))
    assert all(t.moves == [] for t in tokens)
    assert sum(t.rows_evicted for t in tokens) > 0
    assert session.tiers_over_time() is None is session.tiers(0)


@pytest.mark.parametrize("kv_type, most", [("q8", 0.75), ("q4", 0.6)])
def test_old_rows_are_compressed(model, kv_type, most):
    full = model.session(threads=2)
    session = model.session(threads=2, kv_type=kv_type)
    for s in (full, session):
        greedy(s, max_tokens=800, ignore_eos=True).run()
    assert session.memory["rows"][2] > session.memory["rows"][0] > 0
    assert sum(session.memory["page_bytes"]) < most * full.memory["page_bytes"][0]


@pytest.mark.parametrize("tiers", [dict(t0="30%"), dict(t1="host"), dict(t2="25%")])
def test_two_arguments_that_place_the_same_rows_are_refused(model, tiers):
    (name,) = tiers
    with pytest.raises(ebb.InvalidArgument, match=f"kv_type 'q4' and {name} both place the rows"):
        model.session(kv_type="q4", **tiers)


def test_errors_name_the_argument_that_was_given(model):
    with pytest.raises(ebb.InvalidArgument) as refused:
        model.session(t2="old:int4", t1="none", policy="h2o", budget=64, evict="10%")
    assert refused.value.field == "evict"
    with pytest.raises(ebb.InvalidArgument) as refused:
        model.session(t2="old:int4", t1="none", t0="30%")
    assert refused.value.field == "t0"


def test_lossless_text_is_the_full_caches(model):
    text = greedy(model.session(threads=2)).run().text
    session = model.session(threads=2, lossless=True, policy="streaming", sinks=4, window=32)
    assert greedy(session).run().text == text
    assert session.lossless_report["accepted"] > 0


def test_sampling_follows_the_seed(engine):
    def text(seed):
        return engine.session().generate(PUZZLE, max_tokens=40, seed=seed, temperature=2,
                                         ignore_eos=True).run().text

    assert text(1) == text(1) != text(2)


def test_samplers_of_llama_cpp(engine):
    def text(**options):
        given = dict(temperature=8.0, top_k=0, top_p=1.0, min_p=0.0, max_tokens=60, ignore_eos=True, seed=3) | options
        return engine.session().generate(PROMPT, **given).run().text

    plain = text()
    assert text() == plain
    for options in (dict(typical_p=0.2), dict(top_n_sigma=0.5), dict(dynatemp_range=1.5), dict(mirostat=2, mirostat_tau=1.0),
                    dict(xtc_probability=1.0, xtc_threshold=0.01), dict(samplers="top_k", top_k=1)):
        assert text(**options) != plain, options
    assert text(temperature=0.0, dry_multiplier=5.0, dry_sequence_breakers=[]) != text(temperature=0.0)
    with pytest.raises(ebb.InvalidArgument, match="expected samplers of penalties;dry"):
        text(samplers="top_k;fly")
    with pytest.raises(ebb.InvalidArgument, match="mirostat"):
        text(mirostat=3)


def test_stop_texts(engine):
    whole = greedy(engine.session(), max_tokens=60).run().text
    stop = whole[20:26]
    generation = greedy(engine.session(), max_tokens=60, stop=stop)
    assert generation.run().finish_reason in ("stop_string", "length")
    if generation.result.finish_reason == "stop_string":
        assert generation.result.text == whole[: whole.index(stop)]


def test_a_broken_off_generation_leaves_its_tokens(engine):
    session = engine.session()
    generation = greedy(session)
    for i, token in enumerate(generation):
        if i == 9:
            break
    assert generation.result.finish_reason == "cancelled"
    assert generation.result.generated_tokens == 10
    assert session.tokens[-1] == token.id
    rest = greedy(session, None, max_tokens=20).run()
    assert generation.result.text + rest.text == greedy(engine.session(), max_tokens=30).run().text


def test_ctrl_c_ends_a_generation(engine):
    # Without an end.
    session = engine.session(policy="streaming", budget=64, past_context="rerotate")
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        greedy(session, ignore_eos=True, max_tokens=100_000).run()
    timer.join()
    before = len(session.tokens)
    greedy(session, None, max_tokens=3, ignore_eos=True).run()
    assert len(session.tokens) >= before + 2


def test_ctrl_c_ends_a_prompt(model):
    session = model.session(threads=1, prefill_chunk=32)
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        while True:
            session.truncate(0)
            session.prefill([5] * 2000)
    timer.join()
    assert len(session.tokens) % 32 == 0 or len(session.tokens) == 2000


def test_an_exception_in_a_callback_ends_a_prompt_with_it(model):
    session = model.session(threads=2, prefill_chunk=32)
    error = RuntimeError("enough")

    def progress(tokens):
        if tokens >= 64:
            raise error

    with pytest.raises(RuntimeError) as raised:
        session.prefill([5] * 200, progress=progress)
    assert raised.value is error
    assert len(session.tokens) == 64
    session.prefill([5] * 10)


def test_other_threads_run_during_a_step(model):
    session = model.session(threads=1)
    counted = 0
    stop = threading.Event()

    def count():
        nonlocal counted
        while not stop.is_set():
            counted += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    try:
        before = counted
        start = time.monotonic()
        session.prefill([5] * 2000)  # one call
        seconds = time.monotonic() - start
        during = counted - before
    finally:
        stop.set()
        thread.join()
    # Holding the lock, a call of this length would leave room for none.
    assert during > 0.05 * seconds / 0.001


def test_threads_take_turns_on_an_engine(engine):
    sessions = [engine.session() for _ in range(3)]
    texts = [None] * 3

    def work(i):
        texts[i] = greedy(sessions[i], max_tokens=50).run().text

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(texts)) == 1 and texts[0]


def test_fork_save_resume_truncate(engine, tmp_path):
    session = engine.session(policy="attention", budget="50%", window=16, interval=16)
    greedy(session, max_tokens=60).run()
    fork = session.fork()
    session.save(tmp_path / "session.ebb")
    resumed = engine.resume(tmp_path / "session.ebb", policy="attention", budget="50%", window=16,
                            interval=16)
    texts = {greedy(s, None, max_tokens=40).run().text for s in (session, fork, resumed)}
    assert len(texts) == 1
    hashes = {s.logits_hash for s in (session, fork, resumed)}
    assert len(hashes) == 1
    end = len(session.tokens) - 20
    session.truncate(end)
    assert len(session.tokens) == end and len(fork.tokens) == end + 20


def test_shares_and_parking(model):
    session = model.session(threads=2, t0="50%", t1="host", window=16, interval=16)
    greedy(session, max_tokens=150).run()
    before = session.memory["rows"]
    session.set_t0_share(0.1)
    assert session.memory["rows"][0] < before[0]
    session.park()
    assert session.memory["rows"][0] == 0
    full = model.session(threads=2)
    # The last of 150 tokens was not read.
    text = greedy(full, max_tokens=169).run().text
    assert text.endswith(greedy(session, None, max_tokens=20).run().text)


def test_a_chat_reads_what_is_new(model):
    session = model.session(threads=2)
    first = session.chat(PUZZLE, temperature=0, max_tokens=600)
    read = []
    assert first.run().finish_reason == "stop"
    assert "seven" in first.result.content
    assert [m["role"] for m in session.messages] == ["user", "assistant"]
    second = session.chat("First Ada gets five. Second last Ben gets Ada plus two. What does Ben have?",
                          temperature=0, max_tokens=600, progress=read.append)
    second.run()
    assert read[-1] < len(session.tokens) - second.result.generated_tokens
    assert len(session.messages) == 4


def test_a_turn_that_is_given_up_is_kept_as_it_ended(model):
    session = model.session(threads=2)
    generation = session.chat(PUZZLE, temperature=0)
    next(generation)
    generation.close()
    assert generation.result.finish_reason == "cancelled"
    del generation
    gc.collect()
    assert session.chat(PUZZLE, temperature=0, max_tokens=600).run().finish_reason == "stop"


def test_sessions_end_with_their_last_reference(engine):
    scorers = []

    class Counted(ebb.Attention):
        def begin(self):
            super().begin()
            scorers.append(weakref.ref(self))

    session = engine.session(policy="attention", scorer=Counted, budget="25%", window=16)
    generation = greedy(session, max_tokens=20)
    generation.run()
    assert scorers[0]() is not None
    del session, generation
    gc.collect()
    assert scorers[0]() is None


def test_a_session_may_end_during_a_step(engine):
    """In the step of its own engine, on its thread and on another one's."""
    doomed = [engine.session() for _ in range(8)]
    for session in doomed:
        session.prefill(PROMPT)

    class Ends(ebb.Scorer):
        needs = ebb.Needs(mass="sum")

        def observe(self, group, positions, mass, keys, values):
            if doomed:
                doomed.pop()

    session = engine.session(policy="attention", scorer=Ends, budget="25%", window=16)
    others = [engine.session() for _ in range(50)]
    thread = threading.Thread(target=lambda: [others.pop() for _ in range(50)])
    thread.start()
    greedy(session, max_tokens=100).run()
    thread.join()
    assert not doomed and not others


def test_fit(model):
    plan = ebb.fit(model, "1GiB", prompt_tokens=50, max_tokens=900)
    assert plan.setting == "full" and plan.options == {}
    assert plan.bytes["memory"] < 2**30
    table = ebb.fit_table(model, 1000)
    assert {"full"} < {row["setting"] for row in table}
    full = next(row for row in table if row["setting"] == "full")
    assert all(row["t0"] <= full["t0"] for row in table)
    for row in table:
        assert model.session(**row["options"])
        assert ("--t1-read select" in row["setting"]) == ("t1_read" in row["options"])
    with pytest.raises(ebb.LimitReached, match="memory|MiB"):
        ebb.fit(model, "1MiB")


def test_needs_are_counted_before_a_session_is_opened(model):
    engine = ebb.Engine(model, t0="30%", t1="file")
    needs = engine.count_needs(50, 900, window=16, interval=16)
    full = ebb.Engine(model).count_needs(50, 900)
    assert 0 < needs["t0_bytes"] < full["t0_bytes"]
    assert needs["t1_bytes"] > 0 == full["t1_bytes"]


def test_errors_say_what_is_wrong(engine, model, tmp_path):
    with pytest.raises(ebb.InvalidArgument, match="policy"):
        engine.session(policy="none_such")
    with pytest.raises(ebb.InvalidArgument):
        engine.session(policy="h2o", budget="a few")
    with pytest.raises(ebb.NotFound):
        ebb.Model(tmp_path / "no.gguf")
    (tmp_path / "bad.gguf").write_bytes(b"GGUF" + bytes(50))
    with pytest.raises(ebb.Error):
        ebb.Model(tmp_path / "bad.gguf")
    with pytest.raises(TypeError, match="sinks"):
        engine.session(policy="attention", budget="25%", sinks="four")
    with pytest.raises(ebb.InvalidArgument):
        engine.session().decode(-1)
    session = engine.session(context=32)
    with pytest.raises(ebb.LimitReached) as raised:
        session.prefill([5] * 40)
    assert raised.value.code == "context full"
    result = greedy(engine.session(context=64)).run()
    assert result.finish_reason == "context" and result.error


def test_tokens_and_texts(model):
    tokens = model.tokenize(PUZZLE)
    assert PUZZLE in model.detokenize(tokens)
    with pytest.raises(IndexError):
        model.detokenize([10**6])
    assert model.shape.num_layers > 0 and "pebble" in repr(model).lower()
