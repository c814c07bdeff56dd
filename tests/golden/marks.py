"""Scores from the marks that the model itself sets."""
import numpy as np


class Dms:
    """The logit computed with the next token decides: marked above 0 (003, 3.2, 3.3)."""

    def observe(self, sequence, prefill, step):
        pass

    def scores(self, sequence, group):
        return {p: -np.mean([sequence.eviction_logit(l, h, p + 1)
                             for l, h in sequence.groups[group]]) if p + 1 < sequence.now else 0.0
                for p in sequence.alive[group]}
