"""What a model with marks does under hard decisions, teacher-forced.

usage: check.py --model FILE.gguf --problems PROGRAM [--count N] [--seed N] [--heads]
"""

import argparse
import json

import torch

import texts
from decoder import Decoder
from marks import visible_rows

LENGTHS = (128, 256, 384, 512, 768, 1024)


@torch.no_grad()
def check(model, batches):
    """Shares and ratios over texts:
    right: texts of which every counted token is the likeliest, which greedy decoding would write;
    compression_by_peak, _by_reads: rows of the full cache to rows left, mean over layers and heads;
    marked: share of rows that are marked; by_head: share of rows kept, [layers][kv heads];
    by_length: rows of the full cache to rows left once so many tokens were read."""
    right = num_texts = peak = full_peak = 0
    reads = full_reads = marked = rows = 0.0
    by_head = None
    by_length = {length: [0.0, 0.0] for length in LENGTHS}
    for batch in batches:
        decisions = None if model.window is None else model.hard_decisions(batch.lengths)
        likeliest = model.logits(batch.tokens, decisions).argmax(-1)
        missed = batch.counted[:, :-1] & (likeliest[:, :-1] != batch.tokens[:, 1:])
        right += int((~missed.any(1)).sum())
        num_texts += len(batch.tokens)
        full_peak += float(batch.lengths.sum())
        full_reads += float((batch.lengths * (batch.lengths + 1) / 2).sum())
        if decisions is None:
            continue
        evicted = torch.stack(decisions.evicted)  # [layers, texts, kv heads, tokens]
        within = torch.arange(batch.tokens.shape[1]) < batch.lengths[:, None]
        visible = visible_rows(evicted, model.window) * within[:, None]
        peak += float(visible.float().mean((0, 2)).amax(-1).sum())
        reads += float(visible.float().mean((0, 2)).sum())
        marked += float(evicted.float().mean((0, 2)).sum())
        rows += float(batch.lengths.sum())
        for length, sums in by_length.items():
            there = batch.lengths >= length
            if there.any():
                sums[0] += length * int(there.sum())
                sums[1] += float(visible[..., length - 1].float().mean((0, 2))[there].sum())
        kept = (within[:, None] & ~evicted).sum((1, 3))
        by_head = kept if by_head is None else by_head + kept
    result = dict(right=round(right / num_texts, 4))
    if by_head is not None:
        result.update(compression_by_peak=round(full_peak / peak, 3),
                      compression_by_reads=round(full_reads / reads, 3),
                      marked=round(marked / rows, 4),
                      by_length={n: round(full / left, 3)
                                 for n, (full, left) in by_length.items() if left},
                      by_head=[[round(float(x) / rows, 4) for x in heads] for heads in by_head])
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--problems", required=True)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    problems = texts.check_problems(args.problems, args.seed, args.count)
    print(json.dumps(check(Decoder.load(args.model), texts.check_batches(problems, 4096))))


if __name__ == "__main__":
    main()
