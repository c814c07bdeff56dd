"""TOVA: one cache for all layers, with all query heads of a layer, as in the published code.

It is asked to reduce itself from the first decode step on, which is where our policy begins; the
published attention asks after the prompt too. The scores are what it hands to topk.
"""
import pathlib

import torch

from checkout import load, stand_in, watched
from layers import masses, of_layer, positions_of, run
from sequence import Sequence

PUBLISHED = "schwartz-lab-NLP/TOVA@9c7d09b src/tova_cache.py TOVACache.reduce, in decode steps"

# (rows, prompt, steps, seed); of the last the prompt is over the budget
CASES = [(20, 12, 40, 521), (9, 9, 50, 522), (24, 40, 40, 523)]


class Lists:
    """What it uses of the class that it derives from: keys and values by layer."""

    def __init__(self):
        self.key_cache, self.value_cache = [], []


class Layers:
    def __init__(self, cache, sequence):
        self.cache, self.sequence = cache, sequence

    def step(self, step, queries):
        s, cache = self.sequence, self.cache
        results = []
        for layer in range(s.LAYERS):
            keys, values = of_layer(s, layer, s.key, queries), of_layer(s, layer, s.value, queries)
            if step == 0:
                cache.key_cache.append(keys)
                cache.value_cache.append(values)
                results.append((queries, None))
                continue
            cache.key_cache[layer] = torch.cat((cache.key_cache[layer], keys), dim=2)
            cache.value_cache[layer] = torch.cat((cache.value_cache[layer], values), dim=2)
            with watched(torch, "topk") as choices:
                cache.reduce(layer, masses(s, layer, queries)[None])
            results.append((positions_of(cache.key_cache[layer])[0],
                            choices[0][0][0][0].tolist() if choices else None))
        return results


def cases(folder):
    stand_ins = {"transformers": stand_in("transformers"),
                 "transformers.cache_utils": stand_in("transformers.cache_utils",
                                                      DynamicCache=Lists)}
    path = pathlib.Path(folder) / "TOVA" / "src" / "tova_cache.py"
    cache = load(path, "published_tova", stand_ins).TOVACache
    written = []
    for rows, prompt, steps, seed in CASES:
        sequence = Sequence("layer", prompt, seed)
        layers = Layers(cache(rows), sequence)
        written.append({"policy": "tova", "budget": str(rows), "options": {},
                        "granularity": "layer", "prompt": prompt, "steps": steps, "seed": seed,
                        "published": PUBLISHED, "checkpoints": run(sequence, layers.step, steps)})
    return written
