"""Writes what PyTorch makes of a file's marks, for the C++ test of the engine's.

usage: golden.py --model FILE.gguf --problems PROGRAM --out FILE.json [--count N]

The texts are read as they stand, in float32 on the file's weights, with the decisions of inference.
Of each text: its tokens; of each (layer, kv head) the bits logit > 0, token t being bit 7 - t % 8 of
byte t / 8, in hexadecimal; the logits within NEAR of zero as [layer, kv head, token]; the rows that
are left for the query behind the text; the likeliest next token at each place.
"""

import argparse
import json

import numpy as np
import torch

import texts
from decoder import Decoder
from gguf_writing import whole_or_nothing

SEED = 77
NEAR = 0.02


@torch.no_grad()
def golden(model, tokens):
    lengths = torch.tensor([len(tokens)])
    decisions = model.hard_decisions(lengths)
    likeliest = model.logits(torch.tensor(tokens)[None], decisions)[0].argmax(-1)
    logits = torch.stack(decisions.logits)[:, 0]  # [layers, kv heads, tokens]
    evicted = torch.stack(decisions.evicted)[:, 0]
    young = len(tokens) - torch.arange(len(tokens)) <= model.window
    bits = np.packbits((logits > 0).numpy(), axis=-1)
    return dict(tokens=tokens, bits=[[head.tobytes().hex() for head in layer] for layer in bits],
                near=(logits.abs() <= NEAR).nonzero().tolist(),
                visible=(~evicted | young).sum(-1).tolist(), likeliest=likeliest.tolist())


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--problems", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--count", type=int, default=20)
    args = parser.parse_args()
    model = Decoder.load(args.model)
    problems = texts.check_problems(args.problems, SEED, args.count)
    content = dict(window=model.marks.window, near=NEAR,
                   texts=[golden(model, p.tokens.tolist()) for p in problems])
    with whole_or_nothing(args.out) as beside, open(beside, "w", encoding="utf-8") as out:
        # A line for each text.
        out.write(json.dumps(content, separators=(",", ":")).replace('{"tokens"', '\n{"tokens"'))
        out.write("\n")


if __name__ == "__main__":
    main()
