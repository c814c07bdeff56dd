"""Scores from keys and values, with or without attention."""
from collections import defaultdict

import numpy as np

from attention import Attention


def cosine(a, b):
    return float(a @ b / ((np.linalg.norm(a) + 1e-8) * (np.linalg.norm(b) + 1e-8)))


def softmax(x):
    e = np.exp(x - np.max(x))
    return e / e.sum()


class Rkv:
    """lambda a - (1 - lambda) r, as the published code computes it, head by head."""

    WINDOW = 8

    def __init__(self, mix=0.07):
        self.mix = mix

    def observe(self, sequence, prefill, step):
        pass

    def of_head(self, sequence, layer, head, rows):
        n = len(rows)
        ratio = sequence.Q_HEADS // sequence.KV_HEADS
        keys = np.array([sequence.key(layer, head, p) for p in rows])
        queries = range(max(0, sequence.now - self.WINDOW), sequence.now)
        logits = np.array([np.max([keys @ sequence.query(layer, head * ratio + r, q)
                                   for r in range(ratio)], axis=0) for q in queries])
        logits /= np.sqrt(sequence.DIM)
        weights = np.array([softmax(row) for row in logits[:, :n - self.WINDOW]]).mean(axis=0)
        pooled = np.array([weights[max(0, i - 3):i + 4].max() for i in range(n - self.WINDOW)])

        unit = keys / (np.linalg.norm(keys, axis=1, keepdims=True) + 1e-8)
        similarity = unit @ unit.T
        np.fill_diagonal(similarity, 0)
        last = [max((j for j in range(n) if similarity[i, j] > 0.5), default=0) for i in range(n)]
        for i in range(n):
            similarity[i, last[i]] = 0
        redundancy = softmax(similarity.mean(axis=0))
        return self.mix * pooled - (1 - self.mix) * redundancy[:n - self.WINDOW]

    def scores(self, sequence, group):
        rows = sequence.alive[group]
        scores = {p: 1.0 for p in rows}
        if len(rows) > self.WINDOW:
            mean = np.mean([self.of_head(sequence, l, h, rows) for l, h in sequence.groups[group]],
                           axis=0)
            scores.update(zip(rows, mean))
        return scores


class Redundancy(Attention):
    """s - w U r, or s v / m - w U r: our reading of 000, 4.11."""

    def __init__(self, values, weight=1.0, neighbours=8):
        super().__init__()
        self.values, self.weight, self.neighbours = values, weight, neighbours
        self.even = defaultdict(float)

    def observe(self, sequence, prefill, step):
        super().observe(sequence, prefill, step)
        if not prefill:
            for group, rows in enumerate(sequence.alive):
                self.even[group] += 1 / len(rows)

    def likeness(self, sequence, group, p):
        before = range(max(0, p - self.neighbours), p)
        if not before:
            return 0.0
        return np.mean([np.mean([cosine(sequence.key(l, h, p), sequence.key(l, h, b))
                                 for b in before]) for l, h in sequence.groups[group]])

    def norm(self, sequence, group, p):
        return np.mean([np.abs(sequence.value(l, h, p)).sum() for l, h in sequence.groups[group]])

    def scores(self, sequence, group):
        mean = np.mean([self.norm(sequence, group, p) for p in range(sequence.now)])
        scores = {}
        for p in sequence.alive[group]:
            by = self.norm(sequence, group, p) / mean if self.values else 1.0
            scores[p] = (self.of[group][p] * by
                         - self.weight * self.even[group] * self.likeness(sequence, group, p))
        return scores


class KvVariance:
    """Rolling mean over 64 tokens of the variance across the head dimension (002, 3.3)."""

    def __init__(self, what):
        self.what = what

    def observe(self, sequence, prefill, step):
        pass

    def scores(self, sequence, group):
        vector = sequence.key if self.what == "key" else sequence.value
        plain = [np.mean([np.var(vector(l, h, p)) for l, h in sequence.groups[group]])
                 for p in range(sequence.now)]
        return {p: np.mean(plain[max(0, p - 63):p + 1]) for p in sequence.alive[group]}


class Lag:
    """Variance after scaling by the previous chunk's range per channel (002, 3.3)."""

    def __init__(self, chunk, with_values):
        self.chunk, self.with_values = chunk, with_values

    def observe(self, sequence, prefill, step):
        pass

    def scaled_variance(self, vectors, p):
        first = (p // self.chunk - 1) * self.chunk
        reference = vectors[first:first + self.chunk] if first >= 0 else vectors[:p + 1]
        low, high = reference.min(axis=0), reference.max(axis=0)
        span = np.where(high > low, high - low, 1)
        return np.var(np.where(high > low, (vectors[p] - low) / span, 0))

    def scores(self, sequence, group):
        totals = np.zeros(sequence.now)
        for layer, head in sequence.groups[group]:
            for what in [sequence.key] + ([sequence.value] if self.with_values else []):
                vectors = np.array([what(layer, head, p) for p in range(sequence.now)])
                totals += [self.scaled_variance(vectors, p) for p in range(sequence.now)]
        return dict(enumerate(totals / len(sequence.groups[group])))
