"""Quest's choice of pages, with keys and queries of sequence.py (keys as after RoPE).

Two of the project's functions choose. The attention of its evaluation ranks all pages, the newest
too; each query head has the keys of its kv head. The reference that its kernels are tested with
ranks all but the newest, which is always read; it is given each query head's keys. It has no fewest
number of pages, and reads all of them where they are no more than its budget.

selections() gives, for a number of rows, the newest token's included, each layer's pages by query
head, the highest bound first; "dense" where the layer is read in full without a choice.
"""
import pathlib
import types

import numpy as np
import torch

from checkout import load, stand_in, watched
from sequence import Sequence

EVALUATION = "mit-han-lab/Quest@01c1623b evaluation/quest_attention.py forward"
KERNELS = ("mit-han-lab/Quest@01c1623b quest/tests/test_approx_attention.py "
           "_ref_self_approx_attention, and the newest page")

# (which, budget, page, prompt, steps, seed)
CASES = [
    (EVALUATION, 64, 16, 100, [1, 13, 29, 61, 124], 501),
    (EVALUATION, 32, 8, 80, [1, 2, 7, 40, 80], 502),
    (EVALUATION, 16, 4, 30, [1, 6, 11, 34, 70], 503),
    (EVALUATION, 48, 16, 40, [6, 8, 9, 50], 504),
    (KERNELS, 64, 16, 100, [1, 13, 29, 61, 124], 505),
    (KERNELS, 56, 8, 40, [1, 16, 17, 40, 80], 506),
]


def selections(folder):
    project = pathlib.Path(folder) / "Quest"
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)  # theirs mixes what it is given with it
    try:
        return [select(project, *case) for case in CASES]
    finally:
        torch.set_default_dtype(default)


def evaluation(project, budget, page):
    """(layer, query [heads, dim], keys [kv heads, rows, dim]) -> pages by query head, or None."""
    # Of transformers it needs the repeating of heads alone: the keys are as after RoPE.
    llama = stand_in("transformers.models.llama.modeling_llama", LlamaAttention=None,
                     apply_rotary_pos_emb=lambda q, k, *_: (q, k), repeat_kv=repeat_kv)
    names = {"transformers.models.llama.modeling_llama": llama,
             "transformers.cache_utils": stand_in("", DynamicCache=types.NoneType),
             "transformers.models.mistral.modeling_mistral": stand_in("", MistralAttention=None)}
    for name in ("transformers", "transformers.models", "transformers.models.llama",
                 "transformers.models.mistral"):
        names[name] = stand_in(name)
    theirs = load(project / "evaluation" / "quest_attention.py", "published_quest", names)

    def choose(layer, query, keys):
        kv_heads, rows, dim = keys.shape
        width = query.shape[0] * dim
        newest = keys[:, -1].reshape(1, 1, -1)
        attention = types.SimpleNamespace(
            layer_id=layer, num_heads=query.shape[0], num_key_value_heads=kv_heads,
            num_key_value_groups=query.shape[0] // kv_heads, head_dim=dim, hidden_size=width,
            chunk_size=page, token_budget=budget, q_proj=lambda _: query.reshape(1, 1, -1),
            k_proj=lambda _: newest, v_proj=lambda _: newest, o_proj=lambda x: x,
            rotary_emb=lambda *_: (None, None), flash_forward=lambda *_, **__: None)
        past = keys[None, :, :-1]
        with watched(torch.Tensor, "topk") as choices:
            ran = theirs.forward(attention, torch.zeros(1, 1, width), None,
                                 torch.tensor([[rows - 1]]), (past, past), output_attentions=True)
        if ran is None:
            return None
        pages = choices[0][1].indices[0, :, 0].tolist()
        # What is read is what was chosen.
        for weights, of_head in zip(ran[1][0, :, 0], pages):
            assert {p // page for p in weights.nonzero()[:, 0].tolist()} == set(of_head)
        return pages

    return choose


def repeat_kv(states, ratio):
    return states.repeat_interleave(ratio, dim=1)


def kernels(project, budget, page):
    names = {"quest": stand_in("quest"), "quest.utils": stand_in("quest.utils"),
             "pytest": stand_in("pytest", mark=types.SimpleNamespace(
                 parametrize=lambda *_: lambda test: test))}
    theirs = load(project / "quest" / "tests" / "test_approx_attention.py", "published_reference",
                  names)

    def choose(layer, query, keys):
        if layer < 2:  # where quest/models/llama.py gives it a budget without end
            return None
        ratio = query.shape[0] // keys.shape[0]
        of_heads = keys.repeat_interleave(ratio, dim=0).transpose(0, 1)
        num_pages = -(-keys.shape[1] // page)
        _, pages = theirs._ref_self_approx_attention(query[None], of_heads, of_heads, page,
                                                     budget // page)
        if pages is None:
            return [list(range(num_pages))] * query.shape[0]
        return [of_head + [num_pages - 1] for of_head in pages.tolist()]

    return choose


def select(project, which, budget, page, prompt, steps, seed):
    sequence = Sequence("token", prompt, seed)
    choose = (evaluation if which is EVALUATION else kernels)(project, budget, page)
    seen = []
    for step in steps:
        rows = prompt + step
        layers = []
        for layer in range(sequence.LAYERS):
            query = torch.tensor([sequence.query(layer, q, rows - 1).tolist()
                                  for q in range(sequence.Q_HEADS)])
            keys = torch.tensor([[sequence.key(layer, h, p).astype(np.float16).tolist() for p in range(rows)]
                                 for h in range(sequence.KV_HEADS)])
            pages = choose(layer, query, keys)
            layers.append("dense" if pages is None else pages)
        seen.append({"rows": rows, "layers": layers})
    return {"policy": f"quest:page={page}", "budget": str(budget), "page": page,
            "prompt": prompt, "seed": seed, "published": which, "selections": seen}
