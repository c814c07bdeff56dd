"""The gradient score of "Not All Thoughts Need HBM" (4.11, App. C), on pebble: eviction by
|dL/dk_i| + |dL/dv_i| of the next token's loss, against cumulative attention, and how the two rank
the same rows.

usage: gradient.py --problems PROGRAM --model pebble.gguf [--count N] [--out FILE.jsonl]

The rule of eviction is ebb's `attention`: token granularity; the prompt, 4 tokens behind it and the
last 16 stay; every 16 steps all but the budget's share of the rows ever unprotected go, the lowest
scores first. Scores are summed over decode steps and layers, attention over heads too; of
gradients the heads of a layer share one norm, and a step's own row has none yet. The loss is that of
the likeliest token. [ours: the paper says nothing of sums, nor whose loss it is] The full cache is
run with gradients, so that its time per step is theirs.
"""

import argparse
import json
import math
import pathlib
import time

import gguf
import numpy as np
import torch

import data
from export import NAMES
from model import Pebble, Shape, rotate

SINKS, WINDOW, INTERVAL = 4, 16, 16
END = 257


def load(path):
    """The model of a GGUF file that export.py wrote."""
    reader = gguf.GGUFReader(path)

    def number(key):
        return reader.fields[f"llama.{key}"].contents()

    tensors = {t.name: torch.from_numpy(np.array(t.data, dtype=np.float32)) for t in reader.tensors}
    shape = Shape(vocab_size=tensors["token_embd.weight"].shape[0],
                  context=number("context_length"), embed_dim=number("embedding_length"),
                  num_layers=number("block_count"), num_q_heads=number("attention.head_count"),
                  num_kv_heads=number("attention.head_count_kv"),
                  head_dim=number("attention.key_length"),
                  feed_forward_dim=number("feed_forward_length"),
                  rope_base=number("rope.freq_base"),
                  norm_epsilon=number("attention.layer_norm_rms_epsilon"))
    model = Pebble(shape)
    state = {"embedding.weight": tensors["token_embd.weight"],
             "norm.weight": tensors["output_norm.weight"]}
    for block in range(shape.num_layers):
        for part, name in NAMES.items():
            state[f"blocks.{block}.{part}.weight"] = tensors[f"blk.{block}.{name}.weight"]
    model.load_state_dict(state)
    return model.eval()


class Thinker:
    """Greedy decoding of one problem, with rows that can be evicted. Rows: [rows, ...]."""

    def __init__(self, model, question):
        self.model = model
        self.shape = model.shape
        self.keys = [torch.zeros(0, self.shape.num_kv_heads, self.shape.head_dim)
                     for _ in range(self.shape.num_layers)]
        self.values = [k.clone() for k in self.keys]
        self.positions = np.zeros(0, np.int64)
        self.num_question = len(question)
        self.next_position = 0
        self.unprotected_ever = 0
        self.attention = torch.zeros(0)
        self.gradient = torch.zeros(0)
        with torch.no_grad():
            self.token = int(self.step(torch.tensor(question)).argmax())
        # Scores begin behind the prompt (Algorithm 1).
        self.attention.zero_()

    def step(self, tokens):
        """Logits behind the last of `tokens`, which join the rows."""
        num_new = len(tokens)
        where = slice(self.next_position, self.next_position + num_new)
        cosines, sines = self.model.cosines[where], self.model.sines[where]
        group = self.shape.num_q_heads // self.shape.num_kv_heads
        num_old = len(self.positions)
        visible = torch.ones(num_new, num_old + num_new, dtype=torch.bool).tril(num_old)
        x = self.model.embedding(tokens)
        mass = 0
        for layer, block in enumerate(self.model.blocks):
            y = block.attention_norm(x)

            def heads(projected):  # [heads, tokens, head_dim]
                return projected.unflatten(-1, (-1, self.shape.head_dim)).transpose(0, 1)

            q = rotate(heads(block.attention.q(y)), cosines, sines)
            k = rotate(heads(block.attention.k(y)), cosines, sines)
            v = heads(block.attention.v(y))
            self.keys[layer] = torch.cat((self.keys[layer], k.transpose(0, 1)))
            self.values[layer] = torch.cat((self.values[layer], v.transpose(0, 1)))
            all_k = self.keys[layer].transpose(0, 1).repeat_interleave(group, 0)
            all_v = self.values[layer].transpose(0, 1).repeat_interleave(group, 0)
            scores = torch.where(visible, q @ all_k.mT * self.shape.head_dim ** -0.5, -math.inf)
            weights = scores.softmax(-1)
            mass = mass + weights.detach().sum((0, 1))
            mixed = (weights @ all_v).transpose(0, 1).flatten(-2)
            x = x + block.attention.out(mixed)
            x = x + block.feed_forward(block.feed_forward_norm(x))
        self.positions = np.append(self.positions, np.arange(where.start, where.stop))
        self.next_position = where.stop
        none = torch.zeros(num_new)
        self.attention = torch.cat((self.attention, none)) + mass
        self.gradient = torch.cat((self.gradient, none))
        return torch.nn.functional.linear(self.model.norm(x[-1]), self.model.embedding.weight)

    def think(self, wants_gradient):
        """One decode step; false behind the last token."""
        if self.token == END or self.next_position >= self.shape.context:
            return False
        token = torch.tensor([self.token])
        if not wants_gradient:
            with torch.no_grad():
                self.token = int(self.step(token).argmax())
            return True
        rows = [t.detach().requires_grad_() for t in (*self.keys, *self.values)]
        num_layers = self.shape.num_layers
        self.keys, self.values = rows[:num_layers], rows[num_layers:]
        logits = self.step(token)
        self.token = int(logits.argmax())
        loss = torch.nn.functional.cross_entropy(logits[None], torch.tensor([self.token]))
        slopes = torch.autograd.grad(loss, rows)
        sizes = sum(slope.flatten(1).norm(dim=1) for slope in slopes)
        self.gradient[:len(sizes)] += sizes
        self.keys = [k.detach() for k in self.keys]
        self.values = [v.detach() for v in self.values]
        return True

    def evict(self, scores, share):
        """All but this share of the rows ever unprotected go."""
        protected = ((self.positions < self.num_question + SINKS) |
                     (self.positions >= self.next_position - WINDOW))
        candidates = np.flatnonzero(~protected)
        ever = max(0, self.next_position - WINDOW - self.num_question - SINKS)
        num_gone = len(candidates) - math.ceil(share * ever)
        if num_gone <= 0:
            return
        # Of equal scores the row at the lower position stays.
        order = np.lexsort((-self.positions[candidates], scores.numpy()[candidates]))
        kept = np.setdiff1d(np.arange(len(self.positions)), candidates[order[:num_gone]])
        index = torch.from_numpy(kept)
        self.keys = [k[index] for k in self.keys]
        self.values = [v[index] for v in self.values]
        self.attention, self.gradient = self.attention[index], self.gradient[index]
        self.positions = self.positions[kept]


def rank_correlation(a, b):
    """Spearman's; ranks of ties are their mean."""
    def ranks(x):
        _, inverse, counts = np.unique(x, return_inverse=True, return_counts=True)
        return (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return float(np.corrcoef(ranks(a), ranks(b))[0, 1])


def answer(model, problem, score, share):
    """Whether the answer is right, Spearman's rho of both scores at the end, and the steps."""
    question = problem.tokens[:problem.num_question_tokens].astype(np.int64)
    thinker = Thinker(model, question)
    written = [thinker.token]
    limit = 2 * (len(problem.tokens) - len(question))
    steps = 0
    while steps < limit and thinker.think(wants_gradient=score == "gradient" or share == 1):
        written.append(thinker.token)
        steps += 1
        if share < 1 and steps % INTERVAL == 0:
            thinker.evict(thinker.attention if score == "attention" else thinker.gradient, share)
    expected = problem.tokens[-6:].tolist()  # </think> aside: "The answer is X . <end>"
    rho = None
    if share == 1:
        rows = slice(len(question), len(thinker.positions) - WINDOW)
        rho = rank_correlation(thinker.attention[rows].numpy(), thinker.gradient[rows].numpy())
    return written[-6:] == expected, rho, steps


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    if args.count < 1:
        parser.error(f"--count {args.count}; expected 1 or more")
    if not pathlib.Path(args.problems).is_file():
        parser.error(f"--problems {args.problems}: there is no such program")
    torch.set_num_threads(1)
    try:
        model = load(args.model)
    except (OSError, ValueError, KeyError) as error:
        parser.error(f"--model {args.model}: not a model that export.py wrote ({error!r})")
    stream = data.Stream(args.problems, 0, 0, 1, (0, 0, 0))
    problems = stream.block()[:args.count]
    stream.close()
    if len(problems) < args.count:
        parser.error(f"--count {args.count}: a block has {len(problems)} problems")
    out = open(args.out, "w", encoding="utf-8") if args.out else None
    settings = [("full", 1.0)] + [(s, b) for b in (0.9, 0.7, 0.5) for s in ("attention", "gradient")]
    for score, share in settings:
        began = time.monotonic()
        results = [answer(model, problem, score, share) for problem in problems]
        seconds = time.monotonic() - began
        record = dict(score=score, budget=share, right=sum(r[0] for r in results), n=len(results),
                      seconds_per_step=seconds / sum(r[2] for r in results))
        if share == 1:
            rhos = [r[1] for r in results]
            record["spearman_mean"] = float(np.nanmean(rhos))
            record["spearman_deviation"] = float(np.nanstd(rhos))
            record["spearman"] = rhos
        print(json.dumps({k: v for k, v in record.items() if k != "spearman"}), flush=True)
        if out:
            print(json.dumps(record), file=out, flush=True)
    if out:
        out.close()


if __name__ == "__main__":
    main()
