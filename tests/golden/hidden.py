"""Scores from how much hidden states change (002, Eq. 1 to 3)."""
import numpy as np

from attention import Attention


def layer_at(of_32, layers):
    return int(np.floor(of_32 * layers / 32 + 0.5))


class Change:
    """g_l(t) of all tokens, and its trailing windows. The first token has none."""

    def __init__(self, sequence, layer):
        h = np.array([sequence.hidden(layer, p) for p in range(sequence.now)])
        self.g = np.linalg.norm(np.diff(h, axis=0), axis=1)  # of positions 1, 2, ...

    def window(self, p):
        return self.g[max(0, p - 64):p]

    def mean(self, p):
        return self.window(p).mean() if p > 0 else 0.0

    def z(self, p):
        if p == 0:
            return 0.0
        w = self.window(p)
        return (w[-1] - w.mean()) / (w.std() + 1e-6)


class Hidden:
    """kind: epikv, hs_variance or band_adaptive."""

    def __init__(self, kind):
        self.kind = kind

    def observe(self, sequence, prefill, step):
        pass

    def scores(self, sequence, group):
        at = lambda l: layer_at(l, sequence.LAYERS)
        a, b = [at(10)], [at(21)]
        if self.kind == "band_adaptive":
            a, b = range(at(7), at(13) + 1), range(at(18), at(25) + 1)
        changes = {l: Change(sequence, l) for l in {*a, *b}}
        value = Change.mean if self.kind == "hs_variance" else Change.z
        return {p: np.mean([value(changes[l], p) for l in a])
                - np.mean([value(changes[l], p) for l in b]) for p in sequence.alive[group]}


class AttnHs(Attention):
    """Cumulative attention + z_10."""

    def scores(self, sequence, group):
        change = Change(sequence, layer_at(10, sequence.LAYERS))
        return {p: self.of[group][p] + change.z(p) for p in sequence.alive[group]}
