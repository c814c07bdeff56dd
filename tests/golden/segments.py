"""Segments of a thought, typed by the density of attention, with budgets of their own."""
from collections import defaultdict

import numpy as np

from attention import Attention
from hidden import Hidden

REASONING, EXECUTION, TRANSITION = 0, 1, 2


class Thinkv(Attention):
    def __init__(self, tau, budgets, hidden=False):
        super().__init__()
        self.tau, self.budgets = tau, budgets
        self.hidden = Hidden("epikv") if hidden else None
        self.signals = defaultdict(list)  # group: density of each decode step
        self.full = defaultdict(list)     # group: mean density of each full segment
        self.dropped = defaultdict(set)

    def density(self, masses):
        """Entropy over the logarithm of the rows, mean over heads."""
        return np.mean(-(masses * np.log(masses)).sum(axis=1) / np.log(masses.shape[1]))

    def segment(self, sequence, position):
        """Prompt segments first, then generated ones; both begin at their first token."""
        if position < sequence.prompt:
            return position // self.tau
        prompt_segments = -(-sequence.prompt // self.tau)
        return prompt_segments + (position - sequence.prompt) // self.tau

    def rank(self, sequence, group):
        return self.hidden.scores(sequence, group) if self.hidden else self.of[group]

    def judge(self, group):
        past = self.full[group]
        if len(past) < 3:
            return REASONING
        sparser = sum(d < past[-1] for d in past)
        if sparser < len(past) / 3:
            return TRANSITION
        return EXECUTION if sparser >= 2 * len(past) / 3 else REASONING

    def observe(self, sequence, prefill, step):
        super().observe(sequence, prefill, step)
        if prefill:
            return
        for group in range(len(sequence.groups)):
            self.signals[group].append(self.density(sequence.masses(group, sequence.now - 1)))
            if step % self.tau == 0:
                self.full[group].append(np.mean(self.signals[group][-self.tau:]))
                self.close(sequence, group)

    def close(self, sequence, group):
        last = self.segment(sequence, sequence.now - 1)
        closed = [last] if len(self.full[group]) > 1 else list(range(last + 1))
        for segment in closed:
            kind = self.judge(group) if segment == last else REASONING
            rows = [p for p in sequence.alive[group] if self.segment(sequence, p) == segment]
            self.keep_highest(sequence, group, rows, self.budgets[kind])

    def keep_highest(self, sequence, group, rows, count):
        rank = self.rank(sequence, group)
        order = sorted(rows, key=lambda p: (-rank[p], p))
        self.dropped[group] |= set(order[count:])

    def scores(self, sequence, group):
        rank = self.rank(sequence, group)
        squash = (lambda x: 1 / (1 + np.exp(-x))) if self.hidden else (lambda x: x / (1 + x))
        return {p: squash(rank[p]) - (1 if p in self.dropped[group] else 0)
                for p in sequence.alive[group]}


def nearest_of(distances):
    """The first of those that are nearest, to within a thousandth of the squared distance."""
    best = None
    for number, distance in distances:
        if best is None or distance < 0.999 * best[1]:
            best = (number, distance)
    return best[0]


class ThinkvOriginal(Thinkv):
    LADDER = [64, 32, 16, 8, 4]

    def __init__(self, tau):
        super().__init__(tau, None)
        self.rungs = defaultdict(lambda: defaultdict(int))

    def density(self, masses):
        return np.mean((masses >= 0.01 * masses.max(axis=1, keepdims=True)).mean(axis=1))

    def close(self, sequence, group):
        last = self.segment(sequence, sequence.now - 1)
        if self.judge(group) != TRANSITION:
            return
        for segment in range(last):
            rung = self.rungs[group][segment]
            if rung == len(self.LADDER):
                continue
            self.rungs[group][segment] += 1
            rows = [p for p in sequence.alive[group] if self.segment(sequence, p) == segment
                    and p not in self.dropped[group]]
            self.keep_nearest(sequence, group, rows, self.LADDER[rung])

    def keep_nearest(self, sequence, group, rows, count):
        if len(rows) <= count:
            return
        layer = sequence.LAYERS // 2
        points = np.array([np.concatenate([sequence.key(layer, h, p)
                                           for h in range(sequence.KV_HEADS)]) for p in rows])
        centres = points[[c * len(rows) // count for c in range(count)]].copy()
        for _ in range(4):
            distance = ((points[:, None] - centres[None]) ** 2).sum(axis=2)
            nearest = np.array([nearest_of(enumerate(row)) for row in distance])
            for c in range(count):
                if (nearest == c).any():
                    centres[c] = points[nearest == c].mean(axis=0)
        distance = ((points[:, None] - centres[None]) ** 2).sum(axis=2)
        kept = []
        for c in range(count):
            kept.append(nearest_of((m, distance[m, c]) for m in range(len(rows))
                                   if m not in kept))
        self.dropped[group] |= {rows[m] for m in range(len(rows)) if m not in kept}
