"""Writes what NVIDIA's published DMS code makes of two small random models, for the C++ test of the
engine's: tests/golden/published_dms.json, and the models as convert.py writes them beside it.

usage: golden_published.py FOLDER

FOLDER holds a checkout of NVIDIA/Model-Optimizer @ a2fbac7 by that name. Its model, attention of
prefill and cache run on the CPU in float32, uncompiled, with transformers 4.57.3; flash attention
over its pages is stood in for. Values alone are kept.

Of each model: the tokens, of which `prompt` are read at once and the others one by one; the window;
the decisions' logits, [layer, kv head, token]; which rows each query attends to, [layer, kv head,
query], row t being bit 7 - t % 8 of byte t / 8, in hexadecimal; and by position the logits of the
next token.
"""

import argparse
import json
import os
import pathlib
import sys
import tempfile
import types
from unittest import mock

import numpy as np
import torch

import convert
from model_marks import ADAPTER, QUERY

HERE = pathlib.Path(__file__).resolve().parent
TO = HERE.parent.parent / "tests" / "golden"
sys.path.insert(0, str(HERE / "tests"))

from checkpoints import OPTIMIZER, Folder, tensors_of  # noqa: E402

PUBLISHED = "NVIDIA/Model-Optimizer@a2fbac7 experimental/dms"
WINDOW, PAGE, PROMPT, NUM_TOKENS = 24, 8, 100, 160
CASES = [(QUERY, "published_dms_query.gguf", 7), (ADAPTER, "published_dms_adapter.gguf", 8)]
NEAREST = 0.05  # no logit is nearer to 0, so that rounding decides on no row
LEAST = 2.0 ** -12  # smaller weights are 0: F16 then holds all bits of the others
CONFIG = {**OPTIMIZER, "dms_window_size": WINDOW, "dms_paged_attention_block_size": PAGE,
          "tie_word_embeddings": True}


class Watch:
    """What the layers decide and which rows their queries read."""

    def __init__(self):
        shape = (CONFIG["num_hidden_layers"], CONFIG["num_key_value_heads"])
        self.logits = torch.zeros(*shape, NUM_TOKENS)
        self.read = torch.zeros(*shape, NUM_TOKENS, NUM_TOKENS, dtype=torch.bool)
        self.keys = torch.zeros(*shape, NUM_TOKENS, CONFIG["head_dim"])
        self.layer, self.first, self.num_queries = None, 0, 0

    def begin(self, layer, keys, logits):
        """keys: [1, kv heads, queries, head size], logits: [1, kv heads, queries]."""
        self.layer, self.num_queries = layer, keys.shape[2]
        here = slice(self.first, self.first + self.num_queries)
        self.keys[layer, :, here], self.logits[layer, :, here] = keys[0], logits[0]

    def attends(self, head, query, keys):
        """keys: [rows, head size]. A key after RoPE tells its position."""
        same = (self.keys[self.layer, head][None] == keys[:, None]).all(-1)
        assert (same.sum(-1) == 1).all()
        rows = self.read[self.layer, head, self.first + query]
        assert not rows[same.any(0)].any()
        rows |= same.any(0)


def flash_attention(watch):
    """Stands in for flash attention over pages: [kv heads, queries, group, head size]."""

    def attend(q, key_pages, value_pages, k, v, cache_seqlens, causal, softmax_scale, block_table,
               return_softmax_lse=False):
        assert k is None and v is None and (not causal or q.shape[1] == 1)
        out = torch.zeros_like(q)
        sums = torch.full((q.shape[0], q.shape[2], q.shape[1]), -1e9)
        for head, num_rows in enumerate(cache_seqlens.tolist()):
            if num_rows == 0:
                continue
            pages = block_table[head, :-(-num_rows // PAGE)].long()
            keys = key_pages[pages].flatten(0, 2)[:num_rows]
            values = value_pages[pages].flatten(0, 2)[:num_rows]
            scores = torch.einsum("sgd,rd->gsr", q[head], keys) * softmax_scale
            out[head] = torch.einsum("gsr,rd->sgd", scores.softmax(-1), values)
            sums[head] = scores.logsumexp(-1)
            for query in range(q.shape[1]):
                watch.attends(head, query, keys)
        return (out, sums) if return_softmax_lse else out

    return attend


def watch_prefill(module, watch):
    """module: dms.attention_prefill, whose get_mask knows until where each row is seen."""
    get_mask = module.get_mask

    def watching(dms_window_size, compressed_attention_mask, q_seq_len, gqa_factor,
                 flex_attention_fn):
        score_mod, attend = get_mask(dms_window_size, compressed_attention_mask, q_seq_len,
                                     gqa_factor, flex_attention_fn)

        def attending(**given):
            offset = compressed_attention_mask.shape[1] - q_seq_len
            places = torch.arange(compressed_attention_mask.shape[1])
            for head, until in enumerate(compressed_attention_mask):
                for query in range(q_seq_len):
                    seen = (places <= offset + query) & (offset + query < until)
                    watch.attends(head, query, given["key"][head, 0][seen])
            return attend(**given)

        return score_mod, attending

    module.get_mask = watching


def published(folder):
    """The modules that are run."""
    stand_in = types.ModuleType("flash_attn")
    stand_in.flash_attn_with_kvcache = lambda *given, **named: stand_in.attend(*given, **named)
    sys.path.insert(0, str(pathlib.Path(folder) / "Model-Optimizer" / "experimental" / "dms"))
    import transformers.modeling_utils  # looks for a true flash_attn
    with mock.patch.dict(sys.modules, flash_attn=stand_in), \
            mock.patch("torch.compile", lambda **_: lambda function: function):
        import dms.attention_prefill
        from models.qwen3 import modeling_qwen3_dms
    return stand_in, dms.attention_prefill, modeling_qwen3_dms


@torch.no_grad()
def run(modules, checkpoint, tokens, chunk):
    """Logits of the next token at each position from the prompt's last on, and the watch."""
    flash, prefill, modeling = modules
    watch = Watch()
    flash.attend = flash_attention(watch)
    kept = prefill.get_mask, modeling.dms_attention
    watch_prefill(prefill, watch)

    def dms_attention(**given):
        watch.begin(given["layer_idx"], given["new_k"], given["decision_logits"])
        result = kept[1](**given)
        if given["layer_idx"] == CONFIG["num_hidden_layers"] - 1:
            watch.first += watch.num_queries
        return result

    modeling.dms_attention = dms_attention
    try:
        model = modeling.Qwen3ForCausalLMDMS.from_pretrained(
            checkpoint, dtype=torch.float32, attn_implementation="sdpa").eval()
        cache, logits = model.get_cache(), []
        # Model-Optimizer's own way of reading a prompt in parts runs all layers on each.
        model.config.dms_chunked_prefill = chunk
        for part in (tokens[:PROMPT], *tokens[PROMPT:].split(1)):
            result = model(input_ids=part[None], past_key_values=cache, use_cache=True)
            logits.append(result.logits[0, -1])
    finally:
        prefill.get_mask, modeling.dms_attention = kept
    return torch.stack(logits), watch


def golden(modules, folder, layout, name, seed):
    config = {**CONFIG, "dms_separate_alpha": layout == ADAPTER}
    tensors = {n: np.where(np.abs(w) < LEAST, 0, w) for n, w in tensors_of(config, seed).items()}
    checkpoint = Folder(folder / layout, config, tensors=tensors).path
    convert.convert(checkpoint, TO / name, "f16", name=f"Random, {layout}")
    draw = np.random.default_rng(seed)
    tokens = torch.from_numpy(draw.integers(0, 256, NUM_TOKENS))
    logits, watch = run(modules, checkpoint, tokens, None)
    for chunk in (17, 40):
        in_parts, parts = run(modules, checkpoint, tokens, chunk)
        torch.testing.assert_close(in_parts, logits, atol=1e-4, rtol=1e-4)
        assert torch.equal(parts.read, watch.read)
    assert watch.logits.abs().min() > NEAREST
    read = np.packbits(watch.read.numpy(), axis=-1)
    share = watch.read.sum((1, 2, 3)) / (NUM_TOKENS * (NUM_TOKENS + 1))
    print(f"{layout}: rows read, by layer {share.tolist()}; the logit nearest to 0 "
          f"{watch.logits.abs().min():.3f}")
    return dict(layout=layout, model=name, window=WINDOW, prompt=PROMPT, tokens=tokens.tolist(),
                decisions=[[[round(x, 4) for x in head] for head in layer]
                           for layer in watch.logits.tolist()],
                read=[[[row.tobytes().hex() for row in head] for head in layer] for layer in read],
                logits={PROMPT - 1 + i: [round(x, 5) for x in logits[i].tolist()]
                        for i in range(0, len(logits), 12)})


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    modules = published(parser.parse_args().folder)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        cases = [golden(modules, pathlib.Path(folder), *case) for case in CASES]
    path = TO / "published_dms.json"
    beside = f"{path}.new"
    with open(beside, "w", encoding="utf-8") as out:
        lines = [json.dumps({"published": PUBLISHED, **case}, separators=(",", ":"))
                 for case in cases]
        out.write("[\n" + ",\n".join(lines) + "\n]\n")
    os.replace(beside, path)


if __name__ == "__main__":
    main()
