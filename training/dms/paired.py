"""Tests of two settings on the same problems."""

import math


def mcnemar(only_a, only_b):
    """Two-sided exact p that a setting is right more often than another on the same problems."""
    n, k = only_a + only_b, min(only_a, only_b)
    if n == 0:
        return 1.0
    return min(1.0, 2 * sum(math.comb(n, i) for i in range(k + 1)) / 2 ** n)
