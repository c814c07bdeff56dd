"""R-KV's compression of one layer, with keys and queries of sequence.py.

Keys per kv head, queries per query head (their code takes the highest of a kv head's). The position
takes the place of the values, which their code only gathers. It compresses at prefill and then
once the length so far, but for the newest token, is a multiple of the interval; with a prompt of
one more than such a multiple, these are the decode steps that the interval divides.

Their code leaves the rows in the order of their scores. Here they are put into the order of their
positions before it is called again, as a cache that does not move rows has them: its pooling and
its choice of the last similar row go by order, so its later decisions are others without that.
"""
import pathlib

import torch

from checkout import load, stand_in, watched
from sequence import Sequence

WHAT = ("Zefan-Cai/R-KV@d15c9767 rkv/compression/r1_kv.py R1KV.update_kv, "
        "rows in order of position before each call")
WINDOW = 8

# Seeds at which no choice, and no similarity to the threshold, is closer than keys in 16 bits tell.
# (policy, lambda, budget, interval, prompt, steps, seed)
CASES = [
    ("rkv", 0.07, 24, 16, 33, 81, 207),
    ("rkv", 0.07, 40, 32, 65, 129, 296),
    ("rkv:lambda=0.1", 0.1, 32, 24, 49, 97, 218),
    ("rkv:lambda=0.9", 0.9, 24, 16, 33, 81, 251),
]


def cases(folder):
    project = pathlib.Path(folder) / "R-KV" / "rkv"
    utils = load(project / "utils.py", "published_rkv_utils")
    package = stand_in("compression", cal_similarity=utils.cal_similarity,
                       compute_attention_scores=utils.compute_attention_scores)
    r1kv = load(project / "compression" / "r1_kv.py", "compression.r1_kv",
                {"compression": package}).R1KV
    return [run(r1kv, *case) for case in CASES]


def compress(cluster, sequence, layer):
    """By group of the layer: what is left, and {position: score} of what could go."""
    kv_heads, ratio = sequence.KV_HEADS, sequence.Q_HEADS // sequence.KV_HEADS
    alive = [sequence.alive[layer * kv_heads + h] for h in range(kv_heads)]
    keys = torch.tensor([[[sequence.key(layer, h, p).tolist() for p in alive[h]]
                          for h in range(kv_heads)]], dtype=torch.float64)
    last = range(max(0, sequence.now - WINDOW), sequence.now)
    queries = torch.tensor([[[sequence.query(layer, q, p).tolist() for p in last]
                             for q in range(kv_heads * ratio)]], dtype=torch.float64)
    positions = torch.tensor([alive]).unsqueeze(-1).expand(-1, -1, -1, sequence.DIM)
    with watched(torch.Tensor, "topk") as choices:
        _, left = cluster.update_kv(keys, queries, positions)
    scores = choices[-1][0][0][0].tolist() if choices else [[]] * kv_heads
    return [(rows, dict(zip(before, of_head))) for rows, before, of_head
            in zip(left[0, :, :, 0].tolist(), alive, scores)]


def run(r1kv, policy, mix, budget, interval, prompt, steps, seed):
    sequence = Sequence("head", prompt, seed)
    cluster = r1kv(budget=budget, window_size=WINDOW, mix_lambda=mix)
    checkpoints = []
    for step in range(steps + 1):
        if step > 0:
            for rows in sequence.alive:
                rows.append(sequence.now)
            sequence.now += 1
        groups = [{"positions": list(rows)} for rows in sequence.alive]
        if step == 0 or (sequence.now - 1) % interval == 0:
            for layer in range(sequence.LAYERS):
                first = layer * sequence.KV_HEADS
                for group, (left, scores) in enumerate(compress(cluster, sequence, layer), first):
                    groups[group]["scores"] = [rounded(scores.get(p)) for p in
                                               sequence.alive[group]]
                    sequence.alive[group] = sorted(left)
        if step in (0, interval, steps - 1, steps):
            checkpoints.append({"step": step, "groups": groups})
    return {"policy": policy, "budget": str(budget), "options": {"interval": interval},
            "granularity": "head", "prompt": prompt, "steps": steps, "seed": seed,
            "published": WHAT, "checkpoints": checkpoints}


def rounded(score):
    return None if score is None else round(score, 7)
