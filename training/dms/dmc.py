"""Dynamic Memory Compression (Nawrot et al., 2024), the baseline of 003, 5.3: rows merge.

A token is added to the row before it instead of opening a new one. With decision a_i, importance w_i:

  c_i = c_{i-1} a_i + w_i,    row_i = (row_{i-1} c_{i-1} a_i + x_i w_i) / c_i

over at most LOOK_BACK tokens. In training every partial row exists, and row t is hidden from later
queries by log(1 - a_{t+1}). Decisions come from the keys' last channel, importance from the
queries', both before RoPE and both set to 0 afterwards, as in the published code. ebb merges no
rows: these models run here alone.
"""

import math

import torch
import torch.nn.functional as F

from attention import attend
from decoder import Decoder
from marks import move

LOOK_BACK = 12
OFFSET = 5.0


class MergingDecoder(Decoder):
    def with_merges(self):
        """A copy whose weights are its own. What the channels held is set to 0."""
        model = MergingDecoder(self.shape, {n: w.clone() for n, w in self.weights.items()})
        size = self.shape.head_size
        with torch.no_grad():
            for layer in range(self.shape.num_layers):
                for name in ("attn_q", "attn_k"):
                    for part in ("weight", "bias"):
                        values = model.weights.get(f"blk.{layer}.{name}.{part}")
                        if values is not None:
                            values[size - 1::size] = 0
        return model

    @property
    def window(self):
        return 0

    def soft_decisions(self, lengths, noise, tau):
        return SoftMerges(lengths, noise, tau)

    def hard_decisions(self, lengths):
        return HardMerges(lengths)

    def attend(self, x, layer, decide, factor):
        shape = self.shape
        normed = self._norm(x, f"blk.{layer}.attn_norm.weight")
        q = self._plain_queries(normed, layer)
        k, v = self.keys_and_values(normed, layer)
        logits = k[..., -1].float() - OFFSET
        importance = (q[..., -1].unflatten(1, (-1, shape.group)).mean(2).float() + OFFSET).sigmoid()
        keep = torch.ones(shape.head_size, device=x.device)
        keep[-1] = 0
        k = k * keep
        if decide is None:
            return attend(self._rotate(q * keep), self._rotate(k), v)
        bias, merge = decide(layer, logits)
        weights = merging_weights(merge, importance)
        k, v = merged(k, weights), merged(v, weights)
        return attend(self._rotate(q * keep) * keep, self._rotate(k) * keep, v, bias, window=0)


def merging_weights(merge, importance):
    """Share of token t - d in row t: [..., tokens, LOOK_BACK], from merge and importance
    [..., tokens]."""
    product = torch.ones_like(merge)
    shares = []
    for d in range(LOOK_BACK):
        shares.append(product * _earlier(importance, d))
        product = product * _earlier(merge, d)
    shares = torch.stack(shares, -1)
    return shares / shares.sum(-1, keepdim=True)


def _earlier(x, d):
    """x[..., t - d] at t, 0 before the first."""
    return F.pad(x, (d, 0))[..., :x.shape[-1]] if d else x


def merged(x, weights):
    """x: [batch, heads, tokens, head size]."""
    total = 0
    for d in range(LOOK_BACK):
        shifted = F.pad(x, (0, 0, d, 0))[:, :, :x.shape[2]] if d else x
        total = total + weights[..., d, None] * shifted
    return total


class SoftMerges:
    """Decisions of training, of all layers in one forward pass; as marks.SoftDecisions."""

    def __init__(self, lengths, noise, tau):
        self.lengths, self.noise, self.tau = lengths, noise, tau
        self.sums = []

    def __call__(self, layer, logits):
        """Bias of the rows, and how far each token joins the row before it."""
        z = (logits + self.noise[layer]) / self.tau
        # The first token has no row before it.
        z = torch.cat((torch.full_like(z[..., :1], -1e4), z[..., 1:]), -1)
        moved, there = move(z, 1, self.lengths)
        soft, hard = moved.sigmoid(), (moved > 0).float()
        self.sums.append(torch.where(there, hard + soft - soft.detach(), 0.0).sum((1, 2)))
        return torch.where(there, F.logsigmoid(-moved), 0.0), z.sigmoid()

    def shares(self):
        num_rows = len(self.sums) * self.noise.shape[2] * (self.lengths - 1)
        return torch.stack(self.sums).sum(0) / num_rows.clamp(min=1)


class HardMerges:
    """The decisions of inference. `evicted`: rows that the next token joins, [layers] of
    [batch, kv heads, tokens]."""

    def __init__(self, lengths):
        self.lengths = lengths
        self.evicted = []

    def __call__(self, layer, logits):
        joins = logits > 0
        joins[..., 0] = False
        moved, there = move(joins, 1, self.lengths)
        evicted = there & moved
        self.evicted.append(evicted)
        return torch.where(evicted, -math.inf, 0.0), joins.float()
