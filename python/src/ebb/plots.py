"""Draws the figures of a cache (matplotlib; `pip install './python[lab]'` in a checkout).

Each function draws into `ax`, a new one unless given, and returns it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

    from .engine import Session
    from .scorer import AttentionLog

_TIER_COLOURS = ("#d9480f", "#1971c2", "#868e96", "#e9ecef")
_TIER_NAMES = ("T0", "T1", "T2", "evicted")


def _axes(ax: Axes | None) -> Axes:
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots()[1]


def accuracy(summary: pandas.DataFrame, *, against: str = "peak_tokens", ax: Any = None) -> Axes:
    """Accuracy, with its 95 % interval, of each setting of `ebb.summarize()` against what it took:
    "peak_tokens" (rows, mean over layers and kv heads), "peak_kv_bytes" or "kv_reads". A line for each policy, with
    its tiers, and its options where policies differ in these alone."""
    from .fronts import series_name

    ax = _axes(ax)
    records = summary.to_dict("records")
    names = [series_name(record, records) for record in records]
    for name in dict.fromkeys(names):
        rows = summary[[one == name for one in names]]
        rows = rows.sort_values(against)
        x = rows[against].to_numpy() / (2**20 if against == "peak_kv_bytes" else 1)
        error = np.array([rows["accuracy"] - rows["low"], rows["high"] - rows["accuracy"]])
        ax.errorbar(x, rows["accuracy"], yerr=error, marker="o", capsize=3, label=name)
    labels = {"peak_tokens": "rows at the peak", "peak_kv_bytes": "MiB at the peak",
              "kv_reads": "rows read, summed over steps"}
    ax.set_xlabel(labels.get(against, against))
    ax.set_ylabel("accuracy")
    ax.set_ylim(0, 1)
    ax.legend()
    return ax


def tiers_over_time(session: Session, *, ax: Any = None) -> Axes:
    """Rows in each tier after every step of a session with a ledger."""
    rows = session.tiers_over_time()
    if rows is None:
        raise ValueError("the session has no ledger: open it with ledger=True")
    ax = _axes(ax)
    shape = session.engine.model.shape
    streams = sum(shape.kv_heads(layer) for layer in range(shape.num_layers))
    ax.stackplot(np.arange(len(rows)), *(rows.T / streams), labels=_TIER_NAMES,
                 colors=_TIER_COLOURS)
    ax.set_xlabel("step")
    ax.set_ylabel("rows, mean over layers and kv heads")
    ax.legend(loc="upper left")
    return ax


def tiers_of_text(session: Session, *, group: int = 0, ax: Any = None) -> Axes:
    """Where each token of a group lies now, by position."""
    tiers = session.tiers(group)
    if tiers is None:
        raise ValueError("the session has no ledger: open it with ledger=True")
    from matplotlib.colors import ListedColormap

    ax = _axes(ax)
    width = 128
    picture = np.full((-(-len(tiers) // width), width), np.nan)
    picture.flat[: len(tiers)] = tiers
    ax.imshow(picture, cmap=ListedColormap(_TIER_COLOURS), vmin=-0.5, vmax=3.5, aspect="auto",
              interpolation="nearest")
    ax.set_xlabel("position modulo 128")
    ax.set_ylabel("position / 128")
    return ax


def attention(log: AttentionLog, *, ax: Any = None) -> Axes:
    """The attention of each generated token (a row, from the top) to each earlier position (a column), on a
    logarithmic scale. White: evicted, or not yet there."""
    if not log.steps:
        raise ValueError("the log has no steps: generate with a session that has it as its scorer")
    from matplotlib.colors import LogNorm

    ax = _axes(ax)
    shares = log.matrix()
    first = log.steps[0][0]
    picture = ax.imshow(
        np.maximum(shares, 1e-6), norm=LogNorm(1e-4, 1), cmap="magma_r", aspect="auto", interpolation="nearest",
        extent=(-0.5, shares.shape[1] - 0.5, first + len(shares) - 0.5, first - 0.5))
    ax.axvline(first - 0.5, color="#1971c2", linewidth=1)
    ax.set_xlabel("position; the line: the first generated token")
    ax.set_ylabel("position of the query")
    ax.figure.colorbar(picture, ax=ax, label="probability, mean over layers and heads")
    return ax
