"""Trains pebble. See README.md; `training/pebble/train` calls this with everything in place."""

import argparse
import dataclasses
import json
import os
import pathlib
import time

import torch
import torch._dynamo
import torch.nn.functional as F

import data
from model import Pebble, Shape
from muon import Muon


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", required=True, help="the program pebble_problems")
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=3600)
    parser.add_argument("--stop-after", type=int, help="end at this step, to go on later")
    parser.add_argument("--batch-tokens", type=int, default=1 << 14)
    parser.add_argument("--muon-lr", type=float, default=0.02)
    parser.add_argument("--adam-lr", type=float, default=0.003)
    parser.add_argument("--weight-decay", type=float, default=0.01)
    parser.add_argument("--decay-share", type=float, default=0.5, help="of the steps, at the end")
    parser.add_argument("--warmup", type=int, default=100)
    parser.add_argument("--facts-percent", type=int, default=0)
    parser.add_argument("--drill-percent", type=int, default=0)
    parser.add_argument("--brief-percent", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--check-every", type=int, default=250)
    parser.add_argument("--check-problems", type=int, default=200)
    parser.add_argument("--resume", action="store_true")
    for field in dataclasses.fields(Shape):
        if field.name != "vocab_size":
            parser.add_argument("--" + field.name.replace("_", "-"), type=type(field.default),
                                default=field.default)
    return parser.parse_args()


def precision(device):
    """bfloat16 where the processor multiplies it: others take a hundred times as long."""
    fast = device.type == "cuda" or torch.cpu._is_avx512_bf16_supported()
    return torch.autocast(device.type, torch.bfloat16, enabled=fast)


# How much a token counts in the loss, by kind: questions cannot be foretold; values to look up are
# few among the rest, and learnt last.
WEIGHTS = torch.tensor([0.0 if kind == "question" else 2.0 if kind == "lookup" else 1.0
                        for kind in data.KINDS])


def loss_of(model, tokens, kinds):
    """Weighted cross-entropy of the next tokens."""
    next_tokens = F.pad(tokens[:, 1:], (0, 1))
    weights = WEIGHTS.to(kinds.device)[F.pad(kinds[:, 1:], (0, 1)).flatten().long()]
    logits = model(tokens).flatten(0, 1)
    losses = cross_entropy(logits, next_tokens.flatten())
    return (losses * weights).sum() / weights.sum()


@torch.compile(dynamic=False)
def cross_entropy(logits, labels):
    return F.cross_entropy(logits.float(), labels, reduction="none")


def to_device(batch, device):
    tokens, kinds = (torch.from_numpy(array) for array in batch)
    if device.type == "cuda":
        tokens, kinds = tokens.pin_memory(), kinds.pin_memory()
    return (tokens.to(device, non_blocking=True).long(), kinds.to(device, non_blocking=True))


@torch.no_grad()
def right_tokens(model, tokens):
    return model(tokens)[:, :-1].argmax(-1) == tokens[:, 1:]


class Check:
    """Problems that no training saw. Where every token of thought and answer is the likeliest one,
    greedy decoding writes exactly this text; so counting those needs no decoding."""

    def __init__(self, args, device, shares=(0, 0, 0)):
        stream = data.Stream(args.problems, 0, 0, 1, shares)
        problems = []
        while len(problems) < args.check_problems:
            problems += stream.block()
        stream.close()
        self.groups = []
        for length in data.LENGTHS:
            fitting = [p for p in problems[:args.check_problems] if data.padded_length(p) == length]
            size = max(1, args.batch_tokens // length)
            for i in range(0, len(fitting), size):
                some = fitting[i:i + size]
                # One shape for each length: filled up with copies that nobody counts.
                full = some + some[-1:] * (size - len(some))
                self.groups.append((some, to_device(data.pad(full, length), device)))

    def run(self, right):
        wrong = [0] * len(data.KINDS)
        total = [0] * len(data.KINDS)
        whole = [[0, 0] for _ in data.FAMILIES]
        for problems, (tokens, kinds) in self.groups:
            hits = right(tokens)[:len(problems)]
            asked = kinds[:len(problems), 1:]
            for kind in range(1, len(data.KINDS)):
                total[kind] += int((asked == kind).sum())
                wrong[kind] += int(((asked == kind) & ~hits).sum())
            complete = (hits | (asked == 0)).all(1).tolist()
            for problem, is_complete in zip(problems, complete):
                whole[problem.family][0] += is_complete
                whole[problem.family][1] += 1
        return dict(
            exact=sum(w[0] for w in whole) / sum(w[1] for w in whole),
            families={name: round(w[0] / max(1, w[1]), 4) for name, w in zip(data.FAMILIES, whole)},
            right={name: round(1 - w / t, 4) for name, w, t in zip(data.KINDS, wrong, total) if t})


def save(path, **content):
    """The old file or the new one, never half of one."""
    beside = path.with_suffix(".new")
    torch.save(content, beside)
    os.replace(beside, path)


class Trainer:
    def __init__(self, args):
        self.args = args
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        torch.set_float32_matmul_precision("high")
        torch._dynamo.config.recompile_limit = 4 * len(data.LENGTHS)
        torch.manual_seed(args.seed)
        names = {field.name for field in dataclasses.fields(Shape)}
        given = {name: value for name, value in vars(args).items() if name in names}
        self.shape = Shape(vocab_size=len(data.vocabulary(args.problems)), **given)
        self.model = Pebble(self.shape).to(self.device)
        matrices = [w for n, w in self.model.named_parameters()
                    if w.ndim == 2 and n != "embedding.weight"]
        others = [w for n, w in self.model.named_parameters()
                  if w.ndim != 2 or n == "embedding.weight"]
        self.optimizers = [Muon(matrices, args.muon_lr, weight_decay=args.weight_decay),
                           torch.optim.AdamW(others, args.adam_lr, betas=(0.9, 0.98),
                                             weight_decay=0.0)]
        self.peaks = [args.muon_lr, args.adam_lr]
        self.step = 0
        self.seconds = 0.0
        waiting, first_block = None, 0
        self.checkpoint = args.out / "checkpoint.pt"
        if args.resume and self.checkpoint.exists():
            waiting, first_block = self._load()
        stream = data.Stream(args.problems, data.TRAINING_SEED + args.seed, first_block,
                             args.processes,
                             (args.facts_percent, args.drill_percent, args.brief_percent))
        self.stream = stream
        self.batches = data.Prefetch(data.Batches(stream, args.batch_tokens, waiting))
        self.model.compile_blocks()
        self.checks = {"facts": Check(args, self.device, (100, 0, 0)),
                       "drills": Check(args, self.device, (0, 100, 0)),
                       "brief": Check(args, self.device, (0, 0, 100)),
                       "problems": Check(args, self.device)}

    def _load(self):
        loaded = torch.load(self.checkpoint, map_location=self.device, weights_only=False)
        self.model.load_state_dict(loaded["model"])
        for optimizer, state in zip(self.optimizers, loaded["optimizers"]):
            optimizer.load_state_dict(state)
        self.step = loaded["step"]
        self.seconds = loaded["seconds"]
        print(f"going on from step {self.step}", flush=True)
        return loaded["waiting"], loaded["next_block"]

    def _save(self, state):
        save(self.checkpoint, model=self.model.state_dict(), step=self.step, seconds=self.seconds,
             optimizers=[o.state_dict() for o in self.optimizers], **state)

    def _set_rates(self):
        args = self.args
        warm = min(1.0, (self.step + 1) / args.warmup)
        left = (args.steps - self.step) / max(1.0, args.steps * args.decay_share)
        for optimizer, peak in zip(self.optimizers, self.peaks):
            for group in optimizer.param_groups:
                group["lr"] = peak * warm * min(1.0, left)

    def _train_step(self, batch):
        self._set_rates()
        tokens, kinds = to_device(batch, self.device)
        with precision(self.device):
            loss = loss_of(self.model, tokens, kinds)
        loss.backward()
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.step += 1
        return loss.detach()

    def _report(self, losses, num_tokens, began):
        with precision(self.device):
            results = {name: check.run(lambda tokens: right_tokens(self.model, tokens))
                       for name, check in self.checks.items()}
        seconds = time.monotonic() - began
        line = dict(step=self.step, loss=round(float(torch.stack(losses).mean()), 5),
                    tokens_per_second=round(num_tokens / seconds), seconds=round(self.seconds + seconds),
                    **results)
        print(json.dumps(line), flush=True)
        with open(self.args.out / "curve.jsonl", "a", encoding="utf-8") as curve:
            curve.write(json.dumps(line) + "\n")

    def _save_model(self):
        save(self.args.out / "model.pt", model=self.model.state_dict(),
             shape=dataclasses.asdict(self.shape), step=self.step)

    def run(self):
        """To the last step; where it is to stop before, to the first place to go on from."""
        stop = self.args.stop_after or self.args.steps
        losses, num_tokens, began = [], 0, time.monotonic()
        wants_save = False
        while self.step < min(stop, self.args.steps) or (wants_save and self.step < self.args.steps):
            batch, state = self.batches.next()
            losses.append(self._train_step(batch))
            num_tokens += batch[0].size
            if self.step % self.args.check_every == 0 or self.step == self.args.steps:
                self._report(losses, num_tokens, began)
                self.seconds += time.monotonic() - began
                losses, num_tokens, began = [], 0, time.monotonic()
                wants_save = True
            if wants_save and state is not None:
                self._save(state)
                wants_save = False
        self._save_model()
        self.batches.close()
        self.stream.close()


def main():
    args = arguments()
    args.out.mkdir(parents=True, exist_ok=True)
    trainer = Trainer(args)
    num_weights = sum(w.numel() for w in trainer.model.parameters())
    print(f"{num_weights} weights, {trainer.device}", flush=True)
    trainer.run()


if __name__ == "__main__":
    main()
