"""StreamingLLM: one cache for all layers, asked after each step, as in its evaluation."""
import pathlib

import torch

from checkout import load
from layers import of_layer, positions_of, run
from sequence import Sequence

PUBLISHED = ("mit-han-lab/streaming-llm@2e504260 streaming_llm/kv_cache.py "
             "StartRecentKVCache.__call__")

# (budget, options, sinks, window, prompt, steps, seed)
CASES = [
    (None, {"sinks": 4, "window": 16}, 4, 16, 12, 40, 541),
    (None, {"sinks": 3, "window": 9}, 3, 9, 30, 40, 542),
    ("20", {}, 4, 16, 25, 30, 543),
    ("10", {"sinks": 0}, 0, 10, 8, 30, 544),
]


class Layers:
    def __init__(self, cache, sequence):
        self.cache, self.sequence = cache, sequence
        self.rows = None

    def step(self, step, queries):
        s = self.sequence
        rows = [[of_layer(s, layer, what, queries) for what in (s.key, s.value)]
                for layer in range(s.LAYERS)]
        if step > 0:
            rows = [[torch.cat(both, dim=2) for both in zip(old, new)]
                    for old, new in zip(self.rows, rows)]
        self.rows = self.cache(rows)
        left = {tuple(p) for layer in self.rows for what in layer for p in positions_of(what)}
        assert len(left) == 1
        return [(left.pop(), None)]


def cases(folder):
    path = pathlib.Path(folder) / "streaming-llm" / "streaming_llm" / "kv_cache.py"
    cache = load(path, "published_streaming").StartRecentKVCache
    written = []
    for budget, options, sinks, window, prompt, steps, seed in CASES:
        sequence = Sequence("token", prompt, seed)
        layers = Layers(cache(sinks, window), sequence)
        written.append({"policy": "streaming", "budget": budget, "options": options,
                        "granularity": "token", "prompt": prompt, "steps": steps, "seed": seed,
                        "published": PUBLISHED, "checkpoints": run(sequence, layers.step, steps)})
    return written
