"""LagKV's scores, turned back into what `lag_kv` computes.

`lag_kv` and `lag_key` follow EpiKV's account of LagKV, and are not LagKV: the range is that of the
chunk before, not of the chunk after; the score is the variance, not a softmax of the standard
deviation over the chunk; and rows go one by one beyond a budget, not a share of each chunk. What
they have in common is the normalisation and the spread, and that is taken from LagKV's own code: it
is handed the chunks last first, so that the one after is the one before, and its standard deviation
(by d - 1) is squared and brought to a variance (by d). For lag_kv those of keys and values are
summed. So the first chunk has no score; nothing goes, and the tokens just fill the chunks.
"""
import pathlib

import torch

from checkout import load, stand_in, watched
from sequence import Sequence

WHAT = ("AI-Lab-China-Merchants-Bank/LagKV@2a9d19e7 lag_kv.py LagKV._get_states_score, "
        "chunks last first, its standard deviation as a variance")

# (policy, chunk, prompt, steps, seed)
CASES = [
    ("lag_key", 8, 40, 24, 401),
    ("lag_kv", 8, 40, 24, 402),
    ("lag_key", 64, 100, 92, 403),
    ("lag_kv", 64, 100, 92, 404),
]
BUDGET = 1000


def cases(folder):
    cache_utils = stand_in("transformers.cache_utils", DynamicCache=object)
    lag_kv = load(pathlib.Path(folder) / "LagKV" / "lag_kv.py", "published_lag_kv",
                  {"transformers": stand_in("transformers"),
                   "transformers.cache_utils": cache_utils}).LagKV
    return [run(lag_kv, *case) for case in CASES]


def variances(lag_kv, chunk, vectors):
    """Of the vectors from the second chunk on."""
    cache = lag_kv.__new__(lag_kv)
    cache.lag_size = chunk
    chunks = torch.tensor(vectors, dtype=torch.float64).view(-1, chunk, len(vectors[0]))
    states = chunks.flip(0).reshape(1, 1, len(vectors), -1)
    with watched(torch.Tensor, "std") as spreads:
        cache._get_states_score(0, states.size(), len(vectors), states)
    dim = states.size(-1)
    return (spreads[0][1][0, 0].flip(0).flatten() ** 2 * (dim - 1) / dim).tolist()


def run(lag_kv, policy, chunk, prompt, steps, seed):
    sequence = Sequence("head", prompt, seed)
    now = prompt + steps
    assert now % chunk == 0 and now <= BUDGET
    groups = []
    for layer, head in (group[0] for group in sequence.groups):
        of_parts = [variances(lag_kv, chunk, [of(layer, head, p).tolist() for p in range(now)])
                    for of in [sequence.key, sequence.value][:1 if policy == "lag_key" else 2]]
        groups.append({"positions": list(range(now)),
                       "scores": [None] * chunk + [round(sum(v), 7) for v in zip(*of_parts)]})
    return {"policy": f"{policy}:chunk={chunk}", "budget": str(BUDGET), "options": {},
            "granularity": "head", "prompt": prompt, "steps": steps, "seed": seed,
            "published": WHAT, "checkpoints": [{"step": steps, "groups": groups}]}
