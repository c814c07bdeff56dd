"""What a model with marks does under hard decisions, teacher-forced.

usage: check.py --model FILE.gguf --problems PROGRAM [--count N] [--seed N] [--out FILE.json]
"""

import argparse
import contextlib
import json
import math
import pathlib

import torch

import texts
from decoder import Decoder
from marks import visible_rows

LENGTHS = (128, 256, 384, 512, 768, 1024)


@contextlib.contextmanager
def exact_products():
    """Products of float32 as such, where training takes shorter ones."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


class Distance:
    """Of a model's next-token distributions from its teacher's, over all counted places."""

    def __init__(self):
        self.sums = torch.zeros(4, dtype=torch.float64)

    def add(self, batch, logits, taught):
        next_tokens = batch.choose(batch.tokens.roll(-1, 1))[:, None]
        s, t = (batch.choose(x).log_softmax(-1) for x in (logits, taught))
        parts = ((t.exp() * (t - s)).sum(-1), (s.argmax(-1) == t.argmax(-1)),
                 -s.gather(1, next_tokens), -t.gather(1, next_tokens))
        self.sums += torch.stack([part.double().mean() for part in parts]).cpu() * len(s)

    def figures(self, num_places):
        kl, top1, loss, full_loss = (self.sums / num_places).tolist()
        return dict(kl=round(kl, 6), top1=round(top1, 5), perplexity=round(math.exp(loss), 4),
                    perplexity_full=round(math.exp(full_loss), 4))


@exact_products()
@torch.no_grad()
def check(model, batches, teacher=None):
    """Shares and ratios over texts; with a teacher, the distance from it instead of `right`:
    right: texts of which every counted token is the likeliest, which greedy decoding would write;
    compression_by_peak, _by_reads: rows of the full cache to rows left, mean over layers and heads;
    marked: share of rows that are marked; by_head: share of rows kept, [layers][kv heads];
    by_length: rows of the full cache to rows left once so many tokens were read."""
    right = num_texts = peak = full_peak = 0
    reads = full_reads = marked = rows = 0.0
    by_head = None
    by_length = {length: [0.0, 0.0] for length in LENGTHS}
    distance = Distance() if teacher else None
    device = next(iter(model.weights.values())).device
    for batch in batches:
        batch = batch.to(device)
        decisions = None if model.window is None else model.hard_decisions(batch.lengths)
        logits = model.logits(batch.tokens, decisions)
        if teacher:
            distance.add(batch, logits, teacher.logits(batch.tokens))
        likeliest = logits.argmax(-1)
        missed = batch.counted[:, :-1] & (likeliest[:, :-1] != batch.tokens[:, 1:])
        right += int((~missed.any(1)).sum())
        num_texts += len(batch.tokens)
        full_peak += float(batch.lengths.sum())
        full_reads += float((batch.lengths * (batch.lengths + 1) / 2).sum())
        if decisions is None:
            continue
        evicted = torch.stack(decisions.evicted)  # [layers, texts, kv heads, tokens]
        within = torch.arange(batch.tokens.shape[1], device=device) < batch.lengths[:, None]
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
    if teacher:
        result = distance.figures(sum(len(batch.places) for batch in batches))
    else:
        result = dict(right=round(right / num_texts, 4))
    if by_head is not None:
        result.update(compression_by_peak=round(full_peak / peak, 3),
                      compression_by_reads=round(full_reads / reads, 3),
                      marked=round(marked / rows, 4),
                      by_length={n: round(full / left, 3)
                                 for n, (full, left) in by_length.items() if left},
                      by_head=[[round(float(x) / rows, 4) for x in heads] for heads in by_head])
    return result


def main(args=None):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--problems", required=True)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=pathlib.Path, help="write there what is printed otherwise")
    args = parser.parse_args(args)
    problems = texts.check_problems(args.problems, args.seed, args.count)
    model = Decoder.load(args.model, "cuda" if torch.cuda.is_available() else "cpu")
    text = json.dumps(check(model, texts.check_batches(problems, 4096)))
    if args.out:
        args.out.write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
