"""Texts to train on, in batches that are a function of the seed alone.

A batch: tokens [texts, tokens] padded with 0, lengths [texts], counted [texts, tokens]: whether the
prediction of the *next* token counts in the loss; `places` are those that do, in the flat batch. Every stream has `next()`, and `state()`, which is
all that is needed to go on from the same place.
"""

import dataclasses
import pathlib
import random
import sys

import numpy as np
import torch

# Behind this folder: both have modules of other names that are alike.
sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "pebble"))
import data as pebble_data  # noqa: E402


@dataclasses.dataclass
class Batch:
    tokens: torch.Tensor
    lengths: torch.Tensor
    counted: torch.Tensor
    places: torch.Tensor = None

    def __post_init__(self):
        if self.places is None:
            self.places = self.counted.flatten().nonzero().flatten()

    def to(self, device):
        return Batch(*(moved(part, device) for part in
                       (self.tokens, self.lengths, self.counted, self.places)))

    def choose(self, values):
        """values [texts, tokens, ...] at `places`: [places, ...]."""
        return values.flatten(0, 1).index_select(0, self.places)


def moved(tensor, device):
    """On the device. Nothing waits for what a GPU is still at."""
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def pebble_batch(tokens, kinds):
    """Padded problems and their kinds, [texts, tokens] each. Nobody can foretell a question, and padding is of its
    kind: a text ends with its last token of another."""
    answered = kinds != pebble_data.KINDS.index("question")
    counted = np.zeros(kinds.shape, bool)
    counted[:, :-1] = answered[:, 1:]
    return Batch(torch.from_numpy(tokens.astype(np.int64)),
                 torch.from_numpy(kinds.shape[1] - answered[:, ::-1].argmax(1)),
                 torch.from_numpy(counted))


class PebbleTexts:
    """Problems of pebble's generator, those of similar length together."""

    def __init__(self, program, seed, batch_tokens, longest=None, brief_percent=0, state=None):
        """longest: longer texts are left out. brief_percent of them have thoughts without filler."""
        waiting = None
        if state:
            waiting = {n: [pebble_data.Problem(*p) for p in some]
                       for n, some in state["waiting"].items()}
        self.batches = pebble_data.Batches(
            pebble_data.Stream(program, pebble_data.TRAINING_SEED + seed,
                               state["next_block"] if state else 0, 1, (0, 0, brief_percent)),
            batch_tokens, waiting)
        if state:
            self.batches.ready = list(state["ready"])
        if longest is not None:
            whole_block = self.batches.stream.block
            self.batches.stream.block = lambda: [p for p in whole_block()
                                                 if len(p.tokens) <= longest]

    def next(self):
        return pebble_batch(*self.batches.next())

    def state(self):
        return dict(next_block=self.batches.stream.next_block,
                    waiting={n: [tuple(vars(p).values()) for p in some]
                             for n, some in self.batches.waiting.items()},
                    ready=list(self.batches.ready))

    def close(self):
        self.batches.stream.close()


def token_ids(path):
    path = pathlib.Path(path)
    types = {".u16": np.uint16, ".u32": np.uint32}
    if path.suffix not in types:
        raise ValueError(f"{path}: expected a name that ends with .u16 or .u32")
    return np.memmap(path, types[path.suffix], "r")


def stretches_batch(rows):
    """Texts of one length, of which all predictions count."""
    tokens = torch.from_numpy(np.stack(rows))
    counted = torch.ones(tokens.shape, dtype=torch.bool)
    counted[:, -1] = False
    return Batch(tokens, torch.full((len(rows),), tokens.shape[1]), counted)


def held_out_batches(path, length, batch_tokens, count):
    """The first stretches of a file of token ids."""
    ids = token_ids(path)
    rows = [np.array(ids[begin:begin + length], np.int64)
            for begin in range(0, len(ids) - length + 1, length)][:count]
    if not rows:
        raise ValueError(f"{path}: {len(ids)} tokens are no stretch of {length}")
    size = max(1, batch_tokens // length)
    return [stretches_batch(rows[i:i + size]) for i in range(0, len(rows), size)]


class TokenFile:
    """Stretches of a file of token ids (uint16 or uint32, by its name: .u16, .u32), in an order drawn
    anew each time the file is through. All predictions count."""

    def __init__(self, path, seed, batch_tokens, length, state=None):
        self.ids = token_ids(path)
        self.num_stretches = len(self.ids) // length
        self.texts = batch_tokens // length
        if self.num_stretches < self.texts or self.texts == 0:
            raise ValueError(f"{path}: {len(self.ids)} tokens are {self.num_stretches} stretches of "
                             f"{length}; a batch of {batch_tokens} tokens takes {self.texts}")
        self.seed, self.length = seed, length
        self.done = state["done"] if state else 0

    def next(self):
        rows = []
        for i in range(self.done, self.done + self.texts):
            turn, place = divmod(i, self.num_stretches)
            order = np.random.default_rng((self.seed, turn)).permutation(self.num_stretches)
            begin = int(order[place]) * self.length
            rows.append(np.array(self.ids[begin:begin + self.length], np.int64))
        self.done += self.texts
        return stretches_batch(rows)

    def state(self):
        return dict(done=self.done)

    def close(self):
        pass


def equation(seed):
    """A linear equation in one unknown and its solution (003, App. C has such texts)."""
    draw = random.Random(seed)
    name = draw.choice("xyzabmnt")
    solution = draw.randint(-20, 20)
    left, right = draw.sample([n for n in range(-12, 13) if n != 0], 2)
    first = draw.randint(-30, 30)
    last = left * solution + first - right * solution

    def side(factor, constant):
        sign = "-" if constant < 0 else "+"
        head = {1: "", -1: "-"}.get(factor, str(factor))
        return f"{head}{name} {sign} {abs(constant)}" if constant else f"{head}{name}"

    return f"Solve for {name}: {side(left, first)} = {side(right, last)}", solution


def check_problems(program, seed, count, brief_percent=0):
    """The first problems of a seed that no training uses."""
    stream = pebble_data.Stream(program, seed, 0, 1, (0, 0, brief_percent))
    problems = []
    while len(problems) < count:
        problems += stream.block()
    stream.close()
    return problems[:count]


def check_batches(problems, batch_tokens):
    batches = []
    for length in pebble_data.LENGTHS:
        fitting = [p for p in problems if pebble_data.padded_length(p) == length]
        size = max(1, batch_tokens // length)
        batches += [pebble_batch(*pebble_data.pad(fitting[i:i + size], length))
                    for i in range(0, len(fitting), size)]
    return batches
