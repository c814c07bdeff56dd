"""Side by side with kvpress: one random model in both, and the same rows kept. docs/user/kvpress.md has the table.

`make test-kvpress` installs kvpress with PyTorch, and runs these tests.
"""

import numpy as np
import pytest

import ebb

REASON = "kvpress, PyTorch and gguf are not installed: make test-kvpress"
torch = pytest.importorskip("torch", reason=REASON)
kvpress = pytest.importorskip("kvpress", reason=REASON)
gguf = pytest.importorskip("gguf", reason=REASON)
transformers = pytest.importorskip("transformers", reason=REASON)

LAYERS, HEADS, KV_HEADS, HEAD_DIM, VOCAB = 3, 4, 2, 16, 256
EMBED = HEADS * HEAD_DIM
#: Without repetitions: in the first layer the norm of a key depends on its token alone, and equal scores are a tie.
PROMPT = np.random.default_rng(7).permutation(np.arange(3, VOCAB))[:160].tolist()
#: Kept of 160 rows.
ROWS = 64
GROUPS = [(layer, head) for layer in range(LAYERS) for head in range(KV_HEADS)]


@pytest.fixture(scope="module")
def theirs():
    """A Qwen2 of random weights, whose queries and keys are large enough that attention is uneven."""
    torch.manual_seed(0)
    config = transformers.Qwen2Config(
        vocab_size=VOCAB, hidden_size=EMBED, intermediate_size=96, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, max_position_embeddings=512,
        tie_word_embeddings=False, attn_implementation="eager")
    model = transformers.Qwen2ForCausalLM(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.normal_(0, 0.25 if "q_proj" in name or "k_proj" in name else 0.1)
            if "norm" in name:
                weight.add_(1)
    return model


@pytest.fixture(scope="module")
def ours(theirs, tmp_path_factory):
    """An engine on a GGUF file of the same weights; weights and rows are float32."""
    path = tmp_path_factory.mktemp("kvpress") / "tiny.gguf"
    writer = gguf.GGUFWriter(path, "qwen2")
    config = theirs.config
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(EMBED)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(theirs.model.rotary_emb.config.rope_parameters["rope_theta"])
    writer.add_tokenizer_model("llama")
    writer.add_token_list(["<unk>", "<s>", "</s>"] + [f"t{i}" for i in range(3, VOCAB)])
    writer.add_token_scores([0.0] * VOCAB)
    writer.add_token_types([2, 3, 3] + [1] * (VOCAB - 3))
    names = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
             "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
             "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
             "post_attention_layernorm": "ffn_norm", "model.embed_tokens": "token_embd",
             "model.norm": "output_norm", "lm_head": "output", "model.layers": "blk"}
    for name, weight in theirs.state_dict().items():
        for old, new in names.items():
            name = name.replace(old, new)
        writer.add_tensor(name, weight.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return ebb.Engine(ebb.Model(path), threads=2, kv_type="f32")


class Theirs:
    """The Hugging Face model under a press, and the positions of the rows in its cache."""

    def __init__(self, model, press):
        self.model, self.press = model, press
        self.cache, self.full = transformers.DynamicCache(), transformers.DynamicCache()
        self.end = 0

    def read(self, tokens):
        at = torch.arange(self.end, self.end + len(tokens))
        ids = torch.tensor([tokens])

        def step(cache):
            return self.model(ids, past_key_values=cache, cache_position=at, position_ids=at[None],
                              output_attentions=True).logits[0, -1].numpy()

        with torch.no_grad():
            step(self.full)
            with self.press(self.model):
                logits = step(self.cache)
        self.end += len(tokens)
        return logits

    def kept(self, layer, head):
        """Positions of the rows, in the order of the cache. Finds each key in the full cache: kvpress copies keys
        without changing a bit. Valid in every layer after the prompt, and in the first layer after later tokens."""
        full = {key.tobytes(): at for at, key in enumerate(self.full.layers[layer].keys[0, head].numpy())}
        assert len(full) == self.end
        return [full[key.tobytes()] for key in self.cache.layers[layer].keys[0, head].numpy()]


class Compress(ebb.Placement):
    """ScorerPress.compress(): once the prompt is read, ROWS rows of the highest scores stay."""

    def due(self, facts, num_rows):
        return facts.next_position == len(PROMPT)

    def place(self, facts):
        return np.sort(np.argsort(facts.scores, kind="stable")[:-ROWS])


class Knorm(ebb.Scorer):
    needs = ebb.Needs(keys=True)

    def observe(self, group, positions, mass, keys, values):
        self[group][-keys.shape[1]:] = -np.linalg.norm(keys[0, :, 0], axis=-1)


class KeyDiff(ebb.Scorer):
    needs = ebb.Needs(keys=True)
    compares_keys = True

    def begin(self):
        self.keys = [np.zeros((0, self.shape.head_dim), np.float32)] * self.num_groups

    def observe(self, group, positions, mass, keys, values):
        unit = keys[0, :, 0] / np.linalg.norm(keys[0, :, 0], axis=-1, keepdims=True)
        self.keys[group] = np.concatenate([self.keys[group], unit])

    def retain(self, group, kept):
        super().retain(group, kept)
        self.keys[group] = self.keys[group][kept]

    def scores(self, group):
        anchor = self.keys[group].mean(axis=0)
        return -self.keys[group] @ (anchor / np.linalg.norm(anchor))


class ObservedAttention(ebb.Scorer):
    needs = ebb.Needs(mass="sum", mass_in_prefill=True)

    def observe(self, group, positions, mass, keys, values):
        self[group] += mass

    def scores(self, group):
        return self[group] / np.arange(len(self[group]), 0, -1)


class SnapKV(ebb.Scorer):
    """The window is the last step of the prompt."""

    needs = ebb.Needs(mass="sum", mass_in_prefill=True)
    kernel = 5

    def observe(self, group, positions, mass, keys, values):
        old = len(mass) - self.step.num_tokens
        self[group] = np.finfo(np.float32).max
        if old > 0:
            self[group][:old] = np.convolve(mass[:old], np.ones(self.kernel), "same")


class Tova(ebb.Scorer):
    """The last query's attention, all heads of a layer together. The last row always stays."""

    needs = ebb.Needs(mass="sum", mass_in_prefill=True)

    def observe(self, group, positions, mass, keys, values):
        self[group] = mass
        self[group][-1] = np.finfo(np.float32).max


class LagKV(ebb.Scorer):
    """A row's rank within its chunk, by how its key and value spread in the range of the chunk after it."""

    needs = ebb.Needs(keys=True, values=True)
    sinks, lag = 4, 32

    def observe(self, group, positions, mass, keys, values):
        if self.step.is_decode:
            return
        chunks = (len(positions) - self.sinks) // self.lag
        total = 0
        for rows in (keys[0, :, 0], values[0, :, 0]):
            x = rows[self.sinks:self.sinks + chunks * self.lag].reshape(chunks, self.lag, -1)
            low, high = x[1:].min(axis=1, keepdims=True), x[1:].max(axis=1, keepdims=True)
            spread = np.exp(((x[:-1] - low) / (high - low)).std(axis=-1, ddof=1))
            total = total + spread / spread.sum(axis=1, keepdims=True)
        self[group] = 1
        self[group][self.sinks:][:total.size] = (total.argsort(axis=1).argsort(axis=1) / self.lag).ravel()


def compressed(ours, scorer, *, granularity="head", steps=(len(PROMPT),)):
    session = ours.session(policy="h2o", budget=ROWS, scorer=scorer, placement=Compress, granularity=granularity)
    end = 0
    for tokens in steps:
        session.prefill(PROMPT[end:end + tokens])
        end += tokens
    assert end == len(PROMPT)
    return session


def ratio(rows=ROWS):
    return 1 - (rows + 0.5) / len(PROMPT)


PAIRS = {
    "Knorm": (kvpress.KnormPress, {}, Knorm, {}),
    "KeyDiff": (kvpress.KeyDiffPress, {}, KeyDiff, {}),
    "ObservedAttention": (kvpress.ObservedAttentionPress, {}, ObservedAttention, {}),
    "SnapKV": (kvpress.SnapKVPress, {"window_size": 32}, SnapKV, {"steps": (128, 32)}),
    "TOVA": (kvpress.TOVAPress, {}, Tova, {"granularity": "layer", "steps": (159, 1)}),
    # 4 sinks and the 60 rows from the last whole chunk on have the highest score, so no tie is cut in two.
    "LagKV": (kvpress.LagKVPress, {"lag_size": LagKV.lag}, LagKV, {}),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_compressed_prompt_keeps_the_same_rows(theirs, ours, name):
    press, parameters, scorer, options = PAIRS[name]
    reference = Theirs(theirs, press(compression_ratio=ratio(), **parameters))
    logits = reference.read(PROMPT)
    session = compressed(ours, scorer, **options)
    np.testing.assert_allclose(session.logits, logits, rtol=0, atol=1e-4)
    for group, (layer, head) in enumerate(GROUPS):
        of = layer if options.get("granularity") == "layer" else group
        assert session.visible_positions(of).tolist() == sorted(reference.kept(layer, head))
    # The next token sees the kept rows alone, at their old positions.
    for token in (5, 70, 9):
        session.decode(token)
        np.testing.assert_allclose(session.logits, reference.read([token]), rtol=0, atol=1e-4)


def test_one_row_more_is_noticed(theirs, ours):
    session = compressed(ours, Knorm)
    reference = Theirs(theirs, kvpress.KnormPress(compression_ratio=ratio(ROWS - 1)))
    reference.read(PROMPT)
    for group, (layer, head) in enumerate(GROUPS):
        assert len(set(session.visible_positions(group)) - set(reference.kept(layer, head))) == 1


def test_the_built_in_streaming_keeps_the_same_rows_of_a_prompt(theirs, ours):
    session = ours.session(policy="streaming", sinks=4, budget=ROWS)
    session.prefill(PROMPT)
    reference = Theirs(theirs, kvpress.StreamingLLMPress(compression_ratio=ratio()))
    reference.read(PROMPT)
    assert session.visible_positions(0).tolist() == sorted(reference.kept(0, 0))


TOKENS = np.random.default_rng(1).integers(3, VOCAB, 40).tolist()


def decoding(theirs, press):
    return Theirs(theirs, kvpress.DecodingPress(press, compression_interval=1, target_size=ROWS))


class LastRowStays(ebb.Placement):
    """After each generated token ROWS rows stay: the last one, and those of the highest scores."""

    def due(self, facts, num_rows):
        return facts.is_decode and num_rows > ROWS

    def place(self, facts):
        return np.sort(np.argsort(facts.scores[:-1], kind="stable")[:len(facts.scores) - ROWS])


def test_the_built_in_scorer_tova_decodes_as_kvpress_does(theirs, ours):
    """Row by row: after each step both have the same logits, which depend on every row kept."""
    session = ours.session(policy="tova", budget=ROWS, placement=LastRowStays)
    reference = decoding(theirs, kvpress.TOVAPress())
    session.prefill(PROMPT)
    reference.read(PROMPT)
    for token in TOKENS:
        session.decode(token)
        np.testing.assert_allclose(session.logits, reference.read([token]), rtol=0, atol=1e-4)
    for head in range(KV_HEADS):
        assert session.visible_positions(0).tolist() == sorted(reference.kept(0, head))


def test_the_built_in_policy_tova_lets_the_last_row_go(theirs, ours):
    """The last row is evicted, as in TOVA's published code, when its own query attends to it least."""
    session = ours.session(policy="tova", budget=ROWS)
    reference = decoding(theirs, kvpress.TOVAPress())
    session.prefill(PROMPT)
    reference.read(PROMPT)
    went = 0
    for token in TOKENS:
        session.decode(token)
        reference.read([token])
        last = len(session.tokens) - 1
        assert last in reference.kept(0, 0)
        went += last not in session.visible_positions(0)
    assert 0 < went < len(TOKENS)


def test_streaming_press_in_decoding_counts_rows_in_the_order_of_its_cache(theirs, ours):
    """torch.topk() reorders the rows of the cache, and StreamingLLMPress protects the first four rows in that order:
    the sinks are evicted after a few steps. The built-in policy compares positions."""
    session = ours.session(policy="streaming", sinks=4, budget=ROWS)
    reference = decoding(theirs, kvpress.StreamingLLMPress())
    session.prefill(PROMPT)
    reference.read(PROMPT)
    for token in TOKENS:
        session.decode(token)
        reference.read([token])
    end = len(session.tokens)
    assert session.visible_positions(0).tolist() == [0, 1, 2, 3, *range(end - ROWS + 4, end)]
    assert len(reference.kept(0, 0)) == ROWS and not {0, 1, 2, 3} <= set(reference.kept(0, 0))


def shared(session, reference):
    """The share of the rows that both keep, mean over (layer, kv head) pairs."""
    both = []
    for group, (layer, head) in enumerate(GROUPS):
        kept = session.visible_positions(group if session.num_groups == len(GROUPS) else layer)
        both.append(len(set(kept.tolist()) & set(reference.kept(layer, head))) / ROWS)
    return float(np.mean(both))


@pytest.mark.parametrize("policy, press, parameters, low, high", [
    # H2O sums attention, which favours old rows, and spends half of the budget on the newest rows.
    ("h2o", kvpress.ObservedAttentionPress, {}, 0.5, 0.75),
    # lag_kv compares with the chunk before instead of the chunk after, and does not rank within a chunk.
    ("lag_kv", kvpress.LagKVPress, {"lag_size": 32}, 0.2, 0.4),
])
def test_built_in_policies_that_follow_another_rule(theirs, ours, policy, press, parameters, low, high):
    reference = Theirs(theirs, press(compression_ratio=ratio(), **parameters))
    reference.read(PROMPT)
    if policy == "h2o":
        session = ours.session(policy="h2o", budget=ROWS)
        session.prefill(PROMPT)
    else:
        session = compressed(ours, policy)
    assert low < shared(session, reference) < high
