"""Retrofits a model with Dynamic Memory Sparsification (003, 3). See README.md.

Phases, in this order: fade (query layout), retrofit (CR rises), settle (CR stays, the learning rate
falls to 0). Goes on with what --out holds. On a CPU the same options give the same bits, stopped or
not; on a GPU sums are taken in no fixed order, and a run that was stopped gives another of like kind.
"""

import argparse
import dataclasses
import json
import math
import pathlib
import sys
import time

import torch

import losses
import texts
from check import check
from decoder import Decoder
from dmc import MergingDecoder
from gguf_writing import whole_or_nothing
from marks import compression_at, fade_factor, logistic_noise, target_share
from model_marks import ADAPTER, QUERY, Marks


def arguments(args=None):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    add = parser.add_argument
    add("--model", required=True, help="GGUF; also the teacher")
    add("--out", required=True, type=pathlib.Path)
    add("--problems", help="the program pebble_problems: train on its problems")
    add("--tokens", help="a file of token ids (.u16, .u32) to train on instead")
    add("--length", type=int, default=2048, help="of stretches of --tokens")
    add("--longest", type=int, help="leave out longer problems")
    add("--brief-percent", type=int, default=0, help="of the problems have thoughts without filler")
    add("--method", choices=("dms", "dmc"), default="dms")
    add("--layout", choices=(QUERY, ADAPTER), default=QUERY)
    add("--train", choices=("all", "queries", "adapter"), default="all", help="which weights")
    add("--window", type=int, default=16)
    add("--immediate", action="store_true", help="shift = window: a row goes as it is decided on")
    add("--cr", type=float, default=4.0)
    add("--steps-per-cr", type=int, default=100)
    add("--fade", type=int, default=0, help="steps before the retrofit")
    add("--settle", type=int, default=0, help="steps behind it")
    add("--hold", action="store_true", help="settle at a constant rate, for comparison")
    add("--start", type=pathlib.Path, help="settle from this checkpoint (cr-K.pt) of another run")
    add("--batch-tokens", type=int, default=4096)
    add("--lr", type=float, default=5e-4)
    add("--base-lr", type=float, help="of the model's own weights beside an adapter; --lr unless given")
    add("--tf32", action="store_true", help="products with 10 bits of fraction, on a GPU that has them")
    add("--aux", type=float, help="weight of the auxiliary loss; layers times kv heads unless given")
    add("--kl", choices=("forward", "reverse"), default="forward")
    add("--loss", choices=("distillation", "lm"), default="distillation")
    add("--tau", type=float, default=0.1)
    add("--seed", type=int, default=1)
    add("--check-every", type=int, default=50)
    add("--check-problems", type=int, default=64, help="or held-out texts, at most")
    add("--held-out", help="a file of token ids, not to be trained on, to check on")
    add("--stop-after", type=int, help="end at this step, to go on later")
    return parser.parse_args(args)


# What may differ between a run and its continuation.
FREE = ("out", "stop_after", "check_every", "check_problems", "problems", "held_out")


def settings_of(args):
    return {name: str(value) if isinstance(value, pathlib.Path) else value
            for name, value in vars(args).items() if name not in FREE}


def check_arguments(args):
    """ValueError for what would train nothing, or nothing of use."""
    def wrong(option, expected):
        raise ValueError(f"--{option.replace('_', '-')} {getattr(args, option)}: expected {expected}")
    if args.train == "adapter" and args.layout != ADAPTER:
        wrong("train", "--layout adapter")
    if args.base_lr is not None and (args.layout != ADAPTER or args.train != "all"):
        wrong("base_lr", "--layout adapter --train all")
    if args.cr < 1:
        wrong("cr", "at least 1")
    if args.tau <= 0:
        wrong("tau", "more than 0")
    if args.window < 1:
        wrong("window", "at least 1")
    if args.method == "dmc" and args.immediate:
        wrong("method", "no --immediate, since its rows merge at once")
    if args.layout == ADAPTER and args.fade:
        wrong("fade", "0 with --layout adapter, which borrows no channel")
    if args.tokens and args.window >= args.length:
        wrong("window", f"less than --length {args.length}: no row would ever go")


def save(path, **content):
    with whole_or_nothing(path) as beside:
        torch.save(content, beside)


def trainable_names(model, which):
    """Names of the weights to train, each once."""
    names = list(model.weights)
    if which == "adapter":
        return [n for n in names if ".attn_dms_alpha" in n]
    if which == "queries":
        return [n for n in names if ".attn_q." in n or ".attn_dms_alpha" in n]
    return [n for n in names if n != "rope_freqs.weight"]


class Trainer:
    def __init__(self, args):
        self.args = args
        check_arguments(args)
        torch.set_flush_denormal(True)
        torch.set_float32_matmul_precision("high" if args.tf32 else "highest")
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.teacher = Decoder.load(args.model, self.device)
        if self.teacher.marks is not None:
            raise ValueError(f"{args.model} marks rows already")
        self.student = self._make_student()
        shape = self.student.shape
        self.aux = shape.num_layers * shape.num_kv_heads if args.aux is None else args.aux
        self.trained = {name: self.student.weights[name].requires_grad_()
                        for name in trainable_names(self.student, args.train)}
        groups, self.rate_shares = self._groups()
        self.optimizer = torch.optim.AdamW(groups, args.lr, betas=(0.9, 0.95), weight_decay=0.0)
        self.step, self.tokens_seen = 0, 0
        self.checkpoint = args.out / "checkpoint.pt"
        state = self._load()
        # A step decides the noise, so a run that starts from another's checkpoint counts on from it.
        ramp = round((args.cr - 1) * args.steps_per_cr)
        self.first_settled = self.start_step if args.start else args.fade + ramp
        self.last_step = self.first_settled + args.settle
        self.stream = self._open_stream(state)
        self.check_batches = None
        if args.problems:
            self.check_batches = texts.check_batches(
                texts.check_problems(args.problems, 0, args.check_problems, args.brief_percent),
                args.batch_tokens)
        elif args.held_out:
            self.check_batches = texts.held_out_batches(args.held_out, args.length,
                                                        args.batch_tokens, args.check_problems)

    def _groups(self):
        """Weights that share a rate, and each group's rate as a share of --lr."""
        if self.args.base_lr is None:
            return [dict(params=list(self.trained.values()))], [1.0]
        added = set(trainable_names(self.student, "adapter"))
        parts = [[w for name, w in self.trained.items() if (name in added) == mine]
                 for mine in (True, False)]
        return [dict(params=part) for part in parts], [1.0, self.args.base_lr / self.args.lr]

    def _make_student(self):
        args = self.args
        if args.method == "dmc":
            if args.layout != QUERY or args.fade:
                raise ValueError("--method dmc: expected no --layout and no --fade")
            return MergingDecoder(self.teacher.shape, self.teacher.weights).with_merges()
        student = self.teacher.with_marks(
            Marks(layout=args.layout, window=args.window,
                  shift=args.window if args.immediate else 1))
        if args.layout == QUERY and not args.fade:
            student.clear_mark_rows()
        return student

    def _fades(self):
        return self.args.method == "dms" and self.args.layout == QUERY

    def _open_stream(self, state):
        args = self.args
        if (args.tokens is None) == (args.problems is None):
            raise ValueError("expected --problems or --tokens, one of them")
        if args.tokens:
            return texts.TokenFile(args.tokens, args.seed, args.batch_tokens, args.length, state)
        return texts.PebbleTexts(args.problems, args.seed, args.batch_tokens, args.longest,
                                     args.brief_percent, state)

    def _load(self):
        """State of the stream of texts, or None where the run begins."""
        args = self.args
        path = self.checkpoint if self.checkpoint.exists() else args.start
        self.start_step = 0
        if args.start:
            self.start_step = torch.load(args.start, map_location="cpu", weights_only=False)["step"]
        if path is None:
            return None
        loaded = torch.load(path, map_location=self.device, weights_only=False)
        here, there = settings_of(args), loaded["settings"]
        for name in here:
            # Another run may have gone on to another compression, and is settled here.
            if path != self.checkpoint and name in ("cr", "settle", "hold", "start"):
                continue
            if here[name] != there.get(name):
                raise ValueError(f"{path} was made with --{name.replace('_', '-')} "
                                 f"{there.get(name)}, not {here[name]}")
        if path != self.checkpoint and abs(loaded["cr"] - args.cr) > 1e-6:
            raise ValueError(f"--cr {args.cr}: {path} stands at {loaded['cr']:g}")
        with torch.no_grad():
            for name, weight in self.student.weights.items():
                weight.copy_(loaded["weights"][name])
        self.optimizer.load_state_dict(loaded["optimizer"])
        self.step, self.tokens_seen = loaded["step"], loaded["tokens_seen"]
        print(f"going on from step {self.step} of {path}", flush=True)
        return loaded["stream"]

    def _save(self, path):
        save(path, settings=settings_of(self.args), step=self.step, tokens_seen=self.tokens_seen,
             weights={n: w.detach() for n, w in self.student.weights.items()},
             optimizer=self.optimizer.state_dict(), stream=self.stream.state(),
             marks=self.student.marks and dataclasses.asdict(self.student.marks),
             cr=self.compression())

    def compression(self):
        if self.args.start or self.step >= self.first_settled:
            return self.args.cr
        return compression_at(max(0, self.step - self.args.fade), self.args.steps_per_cr,
                              self.args.cr)

    def _rate(self):
        if self.step < self.first_settled or self.args.hold:
            return self.args.lr
        return self.args.lr * (self.last_step - self.step) / self.args.settle

    def _loss(self, batch):
        student, shape = self.student, self.student.shape
        factor = fade_factor(self.step, self.args.fade) if self._fades() else 0.0
        decisions = None
        if self.step >= self.args.fade:
            noise = logistic_noise((shape.num_layers, len(batch.tokens), shape.num_kv_heads,
                                    batch.tokens.shape[1]), self.args.seed, self.step)
            decisions = student.soft_decisions(batch.lengths, texts.moved(noise, self.device),
                                               self.args.tau)
        states = batch.choose(student.states(batch.tokens, decisions, factor))
        if self.args.loss == "lm":
            next_tokens = batch.choose(batch.tokens.roll(-1, 1))
            main = losses.language_model(states, student.head, next_tokens)
        else:
            with torch.no_grad():
                taught = batch.choose(self.teacher.states(batch.tokens))
            main = losses.distillation(states, student.head, taught, self.teacher.head,
                                       self.args.kl == "reverse")
        if decisions is None:
            return main, main.detach(), torch.zeros_like(main)
        shares = decisions.shares()
        aux = losses.too_few_marks(shares, target_share(self.compression()))
        return main + self.aux * aux, main.detach(), shares.detach().mean()

    def _train_step(self):
        """Loss and marked share, still on the device: to look at them is to wait for it."""
        batch = self.stream.next()
        self.tokens_seen += int(batch.lengths.sum())
        for group, share in zip(self.optimizer.param_groups, self.rate_shares):
            group["lr"] = self._rate() * share
        loss, main, marked = self._loss(batch.to(self.device))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.trained.values(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        if self.step == self.args.fade and self._fades():
            self.student.clear_mark_rows()
        return torch.stack((loss.detach(), main, marked))

    def _look_at(self, lines):
        """[(loss, marked share)] of the steps up to here; ValueError where one came apart."""
        if not lines:
            return []
        values = torch.stack(lines).tolist()
        for i, (loss, _, _) in enumerate(values):
            if not math.isfinite(loss):
                raise ValueError(f"the loss of step {self.step - len(values) + i} is {loss}: "
                                 "a lower --lr may help")
        return [(main, marked) for _, main, marked in values]

    def _report(self, lines, began):
        line = dict(step=self.step, cr=round(self.compression(), 4), tokens=self.tokens_seen,
                    loss=sum(m for m, _ in lines) / len(lines),
                    marked=round(lines[-1][1], 4),
                    seconds_per_step=round((time.monotonic() - began) / len(lines), 3))
        if self.check_batches:
            line["check"] = check(self.student, self.check_batches,
                                  None if self.args.problems else self.teacher)
        print(json.dumps(line), flush=True)
        with open(self.args.out / "curve.jsonl", "a", encoding="utf-8") as curve:
            curve.write(json.dumps(line) + "\n")

    def run(self):
        args = self.args
        stop = min(args.stop_after or self.last_step, self.last_step)
        whole = {args.fade + args.steps_per_cr * (k - 1): k for k in range(2, int(args.cr) + 1)}
        lines, began = [], time.monotonic()
        while self.step < stop:
            lines.append(self._train_step())
            if not args.start and self.step in whole and self.step <= self.first_settled:
                self._look_at(lines)
                self._save(args.out / f"cr-{whole[self.step]}.pt")
            if self.step % args.check_every == 0 or self.step == stop:
                # A run that is stopped before its checkpoint is whole goes on from the one before, and writes
                # this line again; saved first, a stop while it is checked would lose the line.
                self._report(self._look_at(lines), began)
                self._save(self.checkpoint)
                lines, began = [], time.monotonic()
        if self.step == self.last_step:
            self._save(args.out / "model.pt")
        self.stream.close()


def main(args=None):
    args = arguments(args)
    try:
        args.out.mkdir(parents=True, exist_ok=True)
        Trainer(args).run()
    except (ValueError, OSError) as error:
        sys.exit(f"train.py: {error}")


if __name__ == "__main__":
    main()
