"""H2O: the cache that drops rows, one for each layer, a head of it for each kv head of ours."""
import copy
import pathlib

import torch

from checkout import load, stand_in
from layers import masses, of_layer, positions_of, run
from sequence import Sequence

PUBLISHED = ("FMInference/H2O@ac75c2a8 h2o_hf/utils_real_drop/modify_llama.py "
             "H2OKVCache_LayerWise.__call__")

# (policy, budget, heavy, recent, prompt, steps, seed)
CASES = [
    ("h2o", "20", 10, 10, 12, 40, 501),
    ("h2o", "15", 7, 8, 30, 40, 502),
    ("h2o:heavy=6,recent=18", None, 6, 18, 40, 60, 503),
    ("h2o:heavy=16", "20", 16, 4, 25, 50, 504),
]


class Layers:
    def __init__(self, cache, sequence, heavy, recent):
        self.sequence = sequence
        self.caches = [cache(heavy, recent) for _ in range(sequence.LAYERS)]
        self.rows = [None] * sequence.LAYERS

    def step(self, step, queries):
        s = self.sequence
        results = []
        for layer, cache in enumerate(self.caches):
            rows = (of_layer(s, layer, s.key, queries), of_layer(s, layer, s.value, queries))
            if step > 0:
                rows = [torch.cat(both, dim=2) for both in zip(self.rows[layer], rows)]
            # A head of theirs has one query head, a group of ours several, which are summed.
            attention = torch.stack([masses(s, layer * s.KV_HEADS + head, queries).sum(dim=0)
                                     for head in range(s.KV_HEADS)])[None]
            # It scores and decides in one call: a copy shows the scores that it will decide by.
            shown = copy.deepcopy(cache)
            shown._update_hh_score(attention.clone())
            self.rows[layer] = cache(rows, attention)
            results += zip(positions_of(self.rows[layer][0]), shown.hh_score.tolist())
        return results


def cases(folder):
    llama = dict.fromkeys(("LlamaAttention", "rotate_half", "apply_rotary_pos_emb",
                           "LlamaRotaryEmbedding"))
    names = ("transformers", "transformers.models", "transformers.models.llama")
    stand_ins = {name: stand_in(name) for name in names} | {
        "transformers.models.llama.modeling_llama": stand_in(
            "transformers.models.llama.modeling_llama", LlamaForCausalLM=object, **llama),
        "transformers.configuration_utils": stand_in("transformers.configuration_utils",
                                                     PretrainedConfig=object)}
    path = pathlib.Path(folder) / "H2O" / "h2o_hf" / "utils_real_drop" / "modify_llama.py"
    cache = load(path, "published_h2o", stand_ins).H2OKVCache_LayerWise
    written = []
    for policy, budget, heavy, recent, prompt, steps, seed in CASES:
        sequence = Sequence("head", prompt, seed)
        layers = Layers(cache, sequence, heavy, recent)
        written.append({"policy": policy, "budget": budget, "options": {}, "granularity": "head",
                        "prompt": prompt, "steps": steps, "seed": seed, "published": PUBLISHED,
                        "checkpoints": run(sequence, layers.step, steps)})
    return written
