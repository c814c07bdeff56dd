"""Marks that turn where weights are rounded to another type.

usage: flips.py --model FILE.gguf --problems PROGRAM [--seed N]
"""

import argparse
import json

import gguf
import torch

import texts
from check import check
from decoder import Decoder

TYPES = ("BF16", "Q8_0", "Q5_1", "Q4_1", "Q4_0")


def rounded(model, kind, which):
    """The model with matrices whose names hold `which` as that type would have them."""
    weights = dict(model.weights)
    kind = gguf.GGMLQuantizationType[kind]
    for name, values in weights.items():
        if values.ndim == 2 and which in name:
            packed = gguf.quants.quantize(values.numpy(), kind)
            weights[name] = torch.from_numpy(gguf.quants.dequantize(packed, kind).copy())
    return Decoder(model.shape, weights, model.marks)


@torch.no_grad()
def marked(model, batches):
    """Bits of all rows, of the logits of a model that sees the same rows' decisions."""
    bits = []
    for batch in batches:
        decisions = model.hard_decisions(batch.lengths)
        model.states(batch.tokens, decisions)
        within = torch.arange(batch.tokens.shape[1]) < batch.lengths[:, None]
        logits = torch.stack(decisions.logits)
        bits.append((logits > 0).permute(1, 3, 0, 2)[within].flatten())
    return torch.cat(bits)


def by_type(path, program, seed, count=100):
    """{type: {weights: flipped share of all marks, and what check.py says}}, "as it is" first."""
    model = Decoder.load(path)
    batches = texts.check_batches(texts.check_problems(program, seed, count), 4096)
    exact = marked(model, batches)
    figures = {"as it is": dict(marks=len(exact), marked=float(exact.float().mean()),
                           all=dict(flipped=0.0, **check(model, batches)))}
    for kind in TYPES:
        figures[kind] = {}
        for label, which in (("attn_q alone", "attn_q."), ("all", "")):
            other = rounded(model, kind, which)
            share = float((marked(other, batches) != exact).float().mean())
            figures[kind][label] = dict(flipped=share, **check(other, batches))
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--problems", required=True)
    parser.add_argument("--seed", type=int, default=77)
    args = parser.parse_args()
    print(json.dumps(by_type(args.model, args.problems, args.seed), indent=1))


if __name__ == "__main__":
    main()
