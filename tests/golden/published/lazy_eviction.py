"""LazyEviction's decoding of one layer, with attention of sequence.py.

Their rows are per query head, ours per group. So with heads=kv each group is given to them as one
head, with the mean attention of its query heads, which is what our policy tracks then; and with
heads=query they run until the first decision, up to which all rows are there, and the score is the
mean of theirs over the query heads. Keys are such that their softmax gives the attention; the
position takes the place of the values, which their code only gathers.

Only rows that may go have a score. Scores are often equal, and at the limit their code leaves open
which of them go; the cases are ones where that does not happen.
"""
import pathlib

import numpy as np
import torch

from checkout import load, stand_in, watched
from sequence import Sequence

WHAT = ("WeianMao/triattention@e7a0eb18 LazyEviction/model/kv_utils.py "
        "Window_LAZYKVCluster.update_kv_in_decoding")

LEAST_GAP = 1e-5

# (alpha, heads, budget, window, granularity, prompt, steps, seed)
CASES = [
    (0.06, "kv", 40, 16, "head", 20, 65, 303),
    (0.06, "kv", 64, 24, "head", 30, 97, 311),
    (0.04, "kv", 40, 16, "layer", 50, 97, 327),
    (0.04, "kv", 48, 12, "layer", 30, 97, 323),
    (0.02, "query", 24, 8, "head", 30, 8, 303),
    (0.01, "query", 40, 16, "head", 60, 16, 304),
]


def cases(folder):
    project = pathlib.Path(folder) / "triattention" / "LazyEviction" / "model"
    temp_cache = load(project / "temp_cacheobs.py", "published_temp_cacheobs")
    kv_utils = load(project / "kv_utils.py", "published_kv_utils",
                    {"model": stand_in("model"), "model.temp_cacheobs": temp_cache})
    return [run(kv_utils.Window_LAZYKVCluster, temp_cache.TempCache, *case) for case in CASES]


def step_of_layer(cluster, sequence, layer, step, heads, alive):
    """By head: what is left, and {position: score} of what could go."""
    def attention(head, rows):
        return np.mean([sequence.attention(layer, q, sequence.now - 1, rows)
                        for q in heads[head]], axis=0)

    logits = torch.tensor([[np.log(attention(h, rows)).tolist() for h, rows in enumerate(alive)]],
                          dtype=torch.float64)
    keys = torch.stack([logits, torch.zeros_like(logits)], dim=-1)
    query = torch.tensor([np.sqrt(2), 0.0], dtype=torch.float64).expand(1, len(alive), 1, 2)
    positions = torch.tensor([alive]).unsqueeze(-1).expand(-1, -1, -1, 2)
    with watched(torch.Tensor, "topk") as choices:
        _, left, _ = cluster.update_kv_in_decoding(keys, query, positions, None, 1,
                                                   cluster.obs_size, layer, obs_count=step)
    scores = choices[0][0][0][0].tolist() if choices else [[]] * len(alive)
    return [(rows, dict(zip(before, of_head))) for rows, before, of_head
            in zip(left[0, :, :, 0].tolist(), alive, scores)]


def gap(scores, num_kept):
    order = sorted(scores.values(), reverse=True)
    return order[num_kept - 1] - order[num_kept]


def run(cluster_type, cache, alpha, tracked, budget, window, granularity, prompt, steps, seed):
    sequence = Sequence(granularity, prompt, seed)
    per_layer = len(sequence.groups) // sequence.LAYERS
    heads = [[q for _, q in sequence.q_heads(group)] for group in range(per_layer)]
    if tracked == "query":
        heads = [[q] for of_group in heads for q in of_group]
    per_group = len(heads) // per_layer
    cluster = cluster_type(num_hidden_layers=sequence.LAYERS, decoding_recent_size=window,
                           max_kv_capacity=budget, obs_size=window)
    cache.reset()
    cache.alpha = alpha
    # In their order: after a decision that of the scores.
    alive = [[list(range(prompt)) for _ in heads] for _ in range(sequence.LAYERS)]
    checkpoints = []
    for step in range(1, steps + 1):
        sequence.now += 1
        groups = []
        for layer, before in enumerate(alive):
            for rows in before:
                rows.append(sequence.now - 1)
            results = step_of_layer(cluster, sequence, layer, step, heads, before)
            alive[layer] = [rows for rows, _ in results]
            for first in range(0, len(heads), per_group):
                groups.append({"positions": sorted(before[first])})
                scores = [of_head for _, of_head in results[first:first + per_group]]
                if not scores[0]:
                    continue
                assert tracked == "query" or gap(scores[0], budget - window) > LEAST_GAP
                groups[-1]["scores"] = [mean_score(scores, p) for p in sorted(before[first])]
        if step % window == 0 and step >= steps - window or step in (window, steps):
            checkpoints.append({"step": step, "groups": groups})
    return {"policy": f"lazy_eviction:alpha={alpha},heads={tracked}", "budget": str(budget),
            "options": {"interval": window}, "granularity": granularity, "prompt": prompt,
            "steps": steps, "seed": seed, "published": WHAT, "checkpoints": checkpoints}


def mean_score(of_heads, position):
    if position not in of_heads[0]:
        return None
    return round(float(np.mean([scores[position] for scores in of_heads])), 7)
