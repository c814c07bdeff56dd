"""VATP: the attention layer that masks rows, one for each layer, a head for each kv head of ours.

A head of theirs has one query head, a group of ours several, summed: it is given their mean, as
logits over one-hot keys, and its scores are taken that many times.

Rows are hidden by the mask and not freed: those that the next step sees are the ones left. It puts
the scores of the sinks at the highest number, so cases with sinks are without scores.
"""
import pathlib
import types

import torch

from checkout import load, stand_in, watched
from layers import masses, run
from sequence import Sequence

PUBLISHED = ("guozhiyu/vatp@39ea686c utils_hh/modify_llama.py "
             "LlamaAttention_heavy_hitter.forward")

# (policy, budget, heavy, recent, sinks, prompt, steps, seed)
CASES = [
    ("vatp:sinks=0", "20", 10, 10, 0, 20, 40, 561),
    ("vatp:heavy=6,recent=18,sinks=0", None, 6, 18, 0, 30, 40, 562),
    ("vatp:heavy=15", "20", 15, 5, 4, 12, 40, 563),
    ("vatp", "16", 8, 8, 4, 32, 40, 564),
]


class NoRotation(torch.nn.Module):
    def __init__(self, *args, **kwargs):
        super().__init__()

    def forward(self, *args, **kwargs):
        return None, None


class Given(torch.nn.Module):
    """Stands for a projection: what comes out of it is made up."""

    def forward(self, hidden_states):
        return self.output


class Layers:
    def __init__(self, attention, sequence, heavy, recent, sinks, tokens):
        self.sequence, self.scored = sequence, sinks == 0
        self.dim = tokens  # a channel for each, so that any logits can be had
        assert self.dim >= sequence.DIM
        config = types.SimpleNamespace(
            hidden_size=self.dim * sequence.KV_HEADS, num_attention_heads=sequence.KV_HEADS,
            max_position_embeddings=tokens, rope_scaling=None, applyval=True, h2o=True,
            # of the prompt, rounded down
            heavy_ratio=(heavy + 0.5) / sequence.prompt,
            recent_ratio=(recent + 0.5) / sequence.prompt, sink_len=sinks)
        self.layers = [attention(layer, config) for layer in range(sequence.LAYERS)]
        for layer in self.layers:
            for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
                setattr(layer, name, Given())
            layer.o_proj.output = None
        self.rows = [None] * sequence.LAYERS

    def project(self, layer, queries):
        s = self.sequence
        q, k, v = torch.zeros(3, len(queries), s.KV_HEADS, self.dim, dtype=torch.float64)
        for head in range(s.KV_HEADS):
            group = layer * s.KV_HEADS + head
            mean = masses(s, group, queries).mean(dim=0)
            q[:, head, s.alive[group]] = torch.where(mean > 0, mean.log(), 0.0)
            for i, position in enumerate(queries):
                k[i, head, position] = self.dim ** 0.5
                v[i, head, :s.DIM] = torch.from_numpy(s.value(layer, head, position))
        for name, given in (("q_proj", q), ("k_proj", k), ("v_proj", v)):
            getattr(self.layers[layer], name).output = given.reshape(1, len(queries), -1)

    def step(self, step, queries):
        s = self.sequence
        later = torch.arange(s.now) > torch.tensor(queries)[:, None]
        mask = torch.where(later, torch.finfo(torch.float64).min, 0.0)[None, None]
        results = []
        for layer, attention in enumerate(self.layers):
            self.project(layer, queries)
            with watched(torch.Tensor, "topk") as choices:
                _, _, self.rows[layer] = attention(torch.zeros(1, len(queries), 1), mask, None,
                                                   self.rows[layer], use_cache=True)
            results += self.results(layer, choices)
        return results

    def results(self, layer, choices):
        """For each head the rows that its next mask shows, and the scores of those seen so far."""
        s, attention = self.sequence, self.layers[layer]
        scores = attention.previous_scores
        if choices:  # it has put those that it hides to 0 since
            chosen_from = choices[0][0][0]
            scores = torch.cat((chosen_from, scores[:, chosen_from.shape[1]:]), dim=1)
        for head in range(s.KV_HEADS):
            group = layer * s.KV_HEADS + head
            shown = attention.attention_masks_next[0, head, 0, :-1].nonzero().flatten().tolist()
            of_rows = scores[head, s.alive[group]] * len(s.q_heads(group))
            yield shown, of_rows.tolist() if self.scored else None


def load_attention(folder):
    rotary = dict.fromkeys(("LlamaAttention", "LlamaLinearScalingRotaryEmbedding",
                            "LlamaDynamicNTKScalingRotaryEmbedding"))
    names = ("transformers", "transformers.models", "transformers.models.llama")
    stand_ins = {name: stand_in(name) for name in names} | {
        "transformers.models.llama.configuration_llama": stand_in(
            "transformers.models.llama.configuration_llama", LlamaConfig=None),
        "published_vatp": stand_in("published_vatp"),
        "published_vatp.modeling_llama": stand_in(
            "published_vatp.modeling_llama", LlamaRotaryEmbedding=NoRotation,
            apply_rotary_pos_emb=lambda query, key, *rotation: (query, key), **rotary)}
    path = pathlib.Path(folder) / "vatp" / "utils_hh" / "modify_llama.py"
    return load(path, "published_vatp.modify_llama", stand_ins).LlamaAttention_heavy_hitter


def cases(folder):
    attention = load_attention(folder)
    written = []
    for policy, budget, heavy, recent, sinks, prompt, steps, seed in CASES:
        sequence = Sequence("head", prompt, seed)
        layers = Layers(attention, sequence, heavy, recent, sinks, prompt + steps)
        written.append({"policy": policy, "budget": budget, "options": {}, "granularity": "head",
                        "prompt": prompt, "steps": steps, "seed": seed, "published": PUBLISHED,
                        "checkpoints": run(sequence, layers.step, steps)})
    return written
