"""Eviction decisions: from a model's logits to the bias of its attention, and how many there should be.

Shapes: logits [batch, kv heads, tokens] of one layer, in float32. The logit of token t + shift decides
on the row of token t: above 0 it is evicted once a query is more than the window away (003, 3.1).
"""

import math

import numpy as np
import torch
import torch.nn.functional as F


def target_share(compression):
    """a* = 1 - 1/CR, the share of rows to evict (003, 3.2)."""
    return 1.0 - 1.0 / compression


def compression_at(step, steps_per_unit, last):
    """CR(t) = 1 + t / steps_per_unit, at most `last` (003, 4: 100 steps a unit)."""
    return min(1.0 + step / steps_per_unit, last)


def fade_factor(step, num_steps):
    """1 - t / n_t of the first neuron (003, App. B); 0 from step n_t on."""
    return max(0.0, 1.0 - step / num_steps) if num_steps else 0.0


def logistic_noise(shape, seed, step):
    """log u - log(1 - u), the difference of two Gumbel variables, in float32: a function of seed and
    step alone."""
    draw = np.random.default_rng((seed, step))
    return torch.from_numpy(draw.logistic(size=shape).astype(np.float32))


def move(values, shift, lengths):
    """values[..., t + shift] at t, and which of them there are: the texts end at `lengths` [batch].
    Both [batch, kv heads, tokens] and [batch, 1, tokens]."""
    moved = F.pad(values[..., shift:], (0, shift)) if shift else values
    places = torch.arange(values.shape[-1], device=values.device)
    return moved, (places + shift < lengths[:, None])[:, None]


class SoftDecisions:
    """Gumbel-sigmoid decisions of all layers in one forward pass (003, Eq. 1), for training."""

    def __init__(self, marks, lengths, noise, tau):
        """noise: [layers, batch, kv heads, tokens] of logistic noise."""
        self.marks, self.lengths, self.noise, self.tau = marks, lengths, noise, tau
        self.sums = []  # of each layer: [batch]

    def __call__(self, layer, logits):
        """The bias of the layer's rows, log(1 - a)."""
        moved, there = move((logits + self.noise[layer]) / self.tau, self.marks.shift, self.lengths)
        soft = moved.sigmoid()
        hard = (moved > 0).float()
        # Counted hard, with the gradient of the soft value.
        self.sums.append((torch.where(there, hard + soft - soft.detach(), 0.0)).sum((1, 2)))
        return torch.where(there, F.logsigmoid(-moved), 0.0)

    def shares(self):
        """Marked share of the rows of each text, over layers, heads and tokens: [batch]."""
        num_rows = len(self.sums) * self.noise.shape[2] * (self.lengths - self.marks.shift)
        return torch.stack(self.sums).sum(0) / num_rows.clamp(min=1)


class HardDecisions:
    """The decisions of inference: logit > 0. Keeps them, [layers] of [batch, kv heads, tokens]."""

    def __init__(self, marks, lengths):
        self.marks, self.lengths = marks, lengths
        self.logits = []
        self.evicted = []

    def __call__(self, layer, logits):
        self.logits.append(logits)
        moved, there = move(logits, self.marks.shift, self.lengths)
        evicted = there & (moved > 0)
        self.evicted.append(evicted)
        return torch.where(evicted, -math.inf, 0.0)


def visible_rows(evicted, window):
    """How many rows each query sees: [..., tokens], from evicted [..., tokens]. Rows in the window
    count, and the query's own."""
    num_tokens = evicted.shape[-1]
    kept = (~evicted).to(torch.int32).cumsum(-1)
    places = torch.arange(num_tokens, device=evicted.device)
    # Every row of the window is seen; of those further back, only what is kept.
    far = places - window - 1
    far_kept = torch.where(far >= 0, kept.index_select(-1, far.clamp(min=0)), 0)
    return far_kept + torch.minimum(places, torch.full_like(places, window)) + 1
