"""Scores from the attention that rows receive."""
from collections import defaultdict

import numpy as np


class Attention:
    """s_i += mean over layers and query heads of A[i], decode steps only (000, Eq. 1)."""

    def __init__(self):
        self.of = defaultdict(lambda: defaultdict(float))

    def observe(self, sequence, prefill, step):
        if prefill:
            return
        for group, rows in enumerate(sequence.alive):
            mean = sequence.masses(group, sequence.now - 1).mean(axis=0)
            for p, a in zip(rows, mean):
                self.of[group][p] += a

    def scores(self, sequence, group):
        return self.of[group]


class AttentionMean(Attention):
    """The same over the decode steps since the row's birth, that one included."""

    def scores(self, sequence, group):
        steps = sequence.now - sequence.prompt
        lived = {p: steps if p < sequence.prompt else sequence.now - p
                 for p in sequence.alive[group]}
        return {p: self.of[group][p] / max(1, lived[p]) for p in lived}


class AttentionRecent:
    """Mean over the last N queries of the mean attention."""

    def __init__(self, last):
        self.last = last
        self.history = defaultdict(list)  # group: [{position: attention}]

    def observe(self, sequence, prefill, step):
        if prefill:
            return
        for group, rows in enumerate(sequence.alive):
            mean = sequence.masses(group, sequence.now - 1).mean(axis=0)
            self.history[group].append(dict(zip(rows, mean)))

    def scores(self, sequence, group):
        last = self.history[group][-self.last:]
        return {p: sum(h.get(p, 0.0) for h in last) / self.last for p in sequence.alive[group]}


class Tova(AttentionRecent):
    """The attention of the last query."""

    def __init__(self):
        super().__init__(1)


class Oracle:
    """What is still to come of the same in a full cache: the sum over the later of `steps` steps."""

    def __init__(self, steps):
        self.steps = steps
        self.future = {}  # (group, step): attention of that step, by position

    def observe(self, sequence, prefill, step):
        self.step = step
        if not prefill:
            return
        for group in range(len(sequence.groups)):
            for later in range(1, self.steps + 1):
                query = sequence.prompt + later - 1
                self.future[group, later] = np.mean(
                    [sequence.attention(l, q, query, range(query + 1))
                     for l, q in sequence.q_heads(group)], axis=0)

    def scores(self, sequence, group):
        later = [self.future[group, s] for s in range(self.step + 1, self.steps + 1)]
        return {p: sum(a[p] for a in later if p < len(a)) for p in sequence.alive[group]}


class H2o:
    """s_i += sum over all queries and heads of A[i], prefill too."""

    def __init__(self):
        self.of = defaultdict(lambda: defaultdict(float))

    def weight(self, sequence, group, position):
        return 1.0

    def observe(self, sequence, prefill, step):
        queries = range(sequence.prompt) if prefill else [sequence.now - 1]
        for group, rows in enumerate(sequence.alive):
            for query in queries:
                total = sequence.masses(group, query).sum(axis=0)
                for p, a in zip([r for r in rows if r <= query], total):
                    self.of[group][p] += a * self.weight(sequence, group, p)

    def scores(self, sequence, group):
        return self.of[group]


class Vatp(H2o):
    """A times the L1 norm of the value."""

    def weight(self, sequence, group, position):
        return np.mean([np.abs(sequence.value(l, h, position)).sum()
                        for l, h in sequence.groups[group]])


class Raas:
    """The latest step at which the attention was at least alpha."""

    def __init__(self, alpha):
        self.alpha = alpha
        self.stamps = defaultdict(dict)

    def observe(self, sequence, prefill, step):
        for group, rows in enumerate(sequence.alive):
            if prefill:
                self.stamps[group] = {p: 0 for p in rows}
                continue
            mean = sequence.masses(group, sequence.now - 1).mean(axis=0)
            self.stamps[group][sequence.now - 1] = step
            for p, a in zip(rows, mean):
                if a >= self.alpha:
                    self.stamps[group][p] = step

    def scores(self, sequence, group):
        return self.stamps[group]


FORMS = {
    "sigmoid": lambda x: 2 / (1 + np.exp(min(x, 700))),
    "exp": lambda x: np.exp(-x),
    "tanh": lambda x: 1 - np.tanh(x),
    "log": lambda x: 1 / (1 + np.log(1 + x)),
    "inverse": lambda x: 1 / (1 + x),
    "none": lambda x: 0.0,
}


class LazyEviction:
    """Timestamps and maximum recurrence intervals (004, Eq. 1 and 2), by query head or row."""

    def __init__(self, alpha, heads="query", h1="sigmoid", h2="sigmoid"):
        self.alpha, self.heads, self.h1, self.h2 = alpha, heads, h1, h2
        self.tracks = defaultdict(dict)  # (group, head): {position: (TS, MRI)}
        self.t = 0

    def observe(self, sequence, prefill, step):
        self.t = step
        for group, rows in enumerate(sequence.alive):
            attention = None if prefill else sequence.masses(group, sequence.now - 1)
            num_heads = len(sequence.q_heads(group))
            if self.heads == "kv":
                attention = None if prefill else attention.mean(axis=0, keepdims=True)
                num_heads = 1
            for head in range(num_heads):
                track = self.tracks[group, head]
                if prefill:
                    track.update({p: (0, 0) for p in rows})
                    continue
                track[sequence.now - 1] = (step - 1, 0)
                for p, a in zip(rows, attention[head]):
                    stamp, interval = track[p]
                    if a >= self.alpha:
                        track[p] = (step, max(interval, step - stamp))

    def score(self, stamp, interval):
        x = (self.t - stamp) / (interval + 1e-5)
        first = FORMS[self.h1](1 + x if self.h1 == "sigmoid" else x)
        second = FORMS[self.h2](interval - 1) if interval > 0 else 0.0
        return first + second

    def scores(self, sequence, group):
        heads = [h for g, h in self.tracks if g == group]
        return {p: np.mean([self.score(*self.tracks[group, h][p]) for h in heads])
                for p in sequence.alive[group]}
