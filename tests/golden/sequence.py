"""Made-up sequences: signals as a function of position, and decisions carried out on rows."""
import math

import numpy as np

MASK = (1 << 64) - 1


def mix(x):
    """The finaliser of SplitMix64."""
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def uniform(*numbers):
    h = 0
    for n in numbers:
        h = mix(h ^ n)
    return (h >> 11) * 2.0 ** -53


class Sequence:
    """Rows of every group, by position. Layers, query heads, kv heads, head_dim, embed_dim."""

    LAYERS, Q_HEADS, KV_HEADS, DIM, EMBED = 4, 4, 2, 8, 6

    def __init__(self, granularity, prompt, seed):
        self.seed = seed
        self.prompt = prompt
        self.granularity = granularity
        pairs = [(l, h) for l in range(self.LAYERS) for h in range(self.KV_HEADS)]
        if granularity == "token":
            self.groups = [pairs]
        elif granularity == "layer":
            self.groups = [[p for p in pairs if p[0] == l] for l in range(self.LAYERS)]
        else:
            self.groups = [[p] for p in pairs]
        self.alive = [list(range(prompt)) for _ in self.groups]
        self.now = prompt  # tokens so far

    # What the model would show. A fixed direction per head makes some keys alike.
    def key(self, layer, head, position):
        alike = 1.5 if uniform(self.seed, 9, position // 5, head) < 0.5 else 0.3
        return np.array([np.float32(alike * (uniform(self.seed, 1, layer, head, c) - 0.5)
                                    + uniform(self.seed, 2, layer, head, position, c) - 0.5)
                         for c in range(self.DIM)], dtype=np.float64)

    def value(self, layer, head, position):
        return np.array([np.float32(uniform(self.seed, 3, layer, head, position, c) - 0.4)
                         for c in range(self.DIM)], dtype=np.float64)

    def query(self, layer, q_head, position):
        return np.array([np.float32(6 * (uniform(self.seed, 4, layer, q_head, position, c) - 0.5))
                         for c in range(self.DIM)], dtype=np.float64)

    def hidden(self, layer, position):
        size = 1 + 4 * uniform(self.seed, 8, position // 7)
        return np.array([np.float32(size * (uniform(self.seed, 5, layer, position, c) - 0.5))
                         for c in range(self.EMBED)], dtype=np.float64)

    def eviction_logit(self, layer, head, position):
        return float(np.float32(6 * (uniform(self.seed, 10, layer, head, position) - 0.5)))

    def attention(self, layer, q_head, query_position, positions):
        """Of one query over the rows at `positions`; [rows]."""
        spread = 2 + 8 * uniform(self.seed, 7, query_position // 6)
        logits = np.array([spread * uniform(self.seed, 6, layer, q_head, query_position, p)
                           for p in positions])
        weights = np.exp(logits - logits.max())
        return weights / weights.sum()

    def q_heads(self, group):
        """(layer, query head) pairs of a group."""
        ratio = self.Q_HEADS // self.KV_HEADS
        return [(l, h * ratio + r) for l, h in self.groups[group] for r in range(ratio)]

    def masses(self, group, query_position):
        """Of the group's query heads over its rows up to the query; [heads, rows]."""
        rows = [p for p in self.alive[group] if p <= query_position]
        return np.array([self.attention(l, q, query_position, rows)
                         for l, q in self.q_heads(group)])

    def generated(self, position):
        return position >= self.prompt


def first_to_go(scores, rows, count):
    """Of the (ascending) positions `rows`, those that go: lowest score, then highest position."""
    order = sorted(rows, key=lambda p: (scores[p], -p))
    return set(order[:count])


def ceil_share(percent, base):
    return math.ceil(percent * base / 100 - 1e-6)


class Budget:
    def __init__(self, text):
        self.percent = float(text[:-1]) if text.endswith("%") else None
        self.beyond = int(text[1:]) if text.startswith("+") else None
        self.rows = int(text) if text.isdigit() else None

    def of(self, base):
        return ceil_share(self.percent, base) if self.percent else (self.rows or self.beyond)


class HeavyRecent:
    """Keeps the recent rows and of the others the highest scores (H2O and its kin)."""

    def __init__(self, budget, interval, recent, sinks=0, dense_prefill=False):
        self.budget, self.interval, self.sinks = Budget(budget), interval, sinks
        self.recent, self.dense_prefill = recent, dense_prefill

    def due(self, prefill, step):
        return not self.dense_prefill if prefill else step % self.interval == 0

    def evicted(self, sequence, group, scores):
        rows = sequence.alive[group]
        allowed = self.budget.of(sequence.now)
        recent = min(self.recent(allowed), allowed)
        if len(rows) <= allowed:
            return set()
        others = [p for p in rows[:len(rows) - recent] if p >= self.sinks]
        return first_to_go(scores, others, len(rows) - allowed)


class Protected:
    """The prompt, the first generated tokens and a window stay (000, 3.2)."""

    def __init__(self, budget, interval, sinks, window):
        self.budget, self.interval, self.sinks, self.window = Budget(budget), interval, sinks, window

    def due(self, prefill, step):
        return not prefill and step % self.interval == 0

    def evicted(self, sequence, group, scores):
        free = range(sequence.prompt + self.sinks, sequence.now - self.window)
        rows = [p for p in sequence.alive[group] if p in free]
        left = len(sequence.alive[group]) if self.budget.rows else len(rows)
        return first_to_go(scores, rows, max(0, left - self.budget.of(len(free))))


class RecentQuarter:
    """The newest min(128, K/4) stay, and the prompt (002, App. D)."""

    def __init__(self, budget, interval=1, segments=False, prompt=True):
        self.budget, self.interval = Budget(budget), interval
        self.segments, self.prompt = segments, prompt

    def due(self, prefill, step):
        return not prefill and step % self.interval == 0

    def evicted(self, sequence, group, scores):
        first = sequence.prompt if self.prompt else 0
        window = min(128, self.budget.of(sequence.now - first) // 4)
        free = range(first, max(first, sequence.now - window))
        rows = [p for p in sequence.alive[group] if p in free]
        left = len(sequence.alive[group]) if self.budget.rows else len(rows)
        count = max(0, left - self.budget.of(len(free)))
        if self.segments:
            count = max(count, sum(scores[p] < 0 for p in rows))
        return first_to_go(scores, rows, count)


class Delayed:
    """What is marked goes once the next query would be more than `window` tokens after it (003)."""

    def __init__(self, window):
        self.window = window

    def due(self, prefill, step):
        return True

    def evicted(self, sequence, group, scores):
        return {p for p in sequence.alive[group]
                if scores[p] < 0 and sequence.now - p > self.window}


def run(sequence, formula, decision, steps, checkpoints):
    """Prefill as one chunk, then `steps` decode steps. Returns what the checkpoints saw."""
    seen = []
    for step in range(steps + 1):
        prefill = step == 0
        if not prefill:
            for rows in sequence.alive:
                rows.append(sequence.now)
            sequence.now += 1
        formula.observe(sequence, prefill, step)
        checkpoint = {"step": step, "groups": []} if step in checkpoints else None
        for group, rows in enumerate(sequence.alive):
            due = decision is not None and decision.due(prefill, step)
            if not due and checkpoint is None:
                continue
            scores = formula.scores(sequence, group)
            if checkpoint is not None:
                checkpoint["groups"].append({"positions": list(rows),
                                             "scores": [round(float(scores[p]), 7) for p in rows]})
            if due:
                gone = decision.evicted(sequence, group, scores)
                sequence.alive[group] = [p for p in rows if p not in gone]
        if checkpoint is not None:
            seen.append(checkpoint)
    return seen
