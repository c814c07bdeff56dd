"""Policies in Python: what ranks rows (`Scorer`), and what decides which of them go (`Placement`)."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Iterable, Sequence

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ._ebb import Facts, ModelShape, Step


@dataclass(frozen=True)
class Needs:
    """What a scorer reads. What is not asked for is not computed.

    Attributes:
        mass: softmax probability that each row received in a step: "none"; "sum" over the query heads
            and layers of the group; by "kv_head" or by "query_head".
        mass_in_prefill: the mass of given text too, which needs a second pass over its keys.
        keys, values: of the step's new tokens, keys after RoPE.
        keys_before_rope: the engine computes them; `observe` is not given them yet.
        recent_queries: the last n queries of every layer, for `self.step.recent_queries(layer)`.
        hidden_layers: blocks, from 0, whose output is wanted, for `self.step.hidden(index)`.
    """

    mass: str = "none"
    mass_in_prefill: bool = False
    keys: bool = False
    values: bool = False
    keys_before_rope: bool = False
    recent_queries: int = 0
    hidden_layers: Sequence[int] = field(default_factory=list)


class _Part:
    """Describes the cache to scorers and placements."""

    name: str = ""
    shape: ModelShape
    granularity: str
    num_groups: int
    seed: int

    def _begin(self, shape: ModelShape, granularity: str, num_groups: int, seed: int) -> None:
        self.shape = shape
        self.granularity = granularity
        self.num_groups = num_groups
        self.seed = seed
        if not self.name:
            self.name = type(self).__name__
        self.begin()

    def begin(self) -> None:
        """Called once, when `shape`, `granularity`, `num_groups` and `seed` are known."""


class Scorer(_Part):
    """Turns what a step shows into a number per row; rows with the lowest numbers go first.

    A group is a set of (layer, kv head) pairs that keep the same tokens: all of them ("token"
    granularity), those of a layer ("layer") or one pair ("head"). Rows of a group are numbered by
    position: row 0 is the oldest that is left.

    The least that a subclass does is `needs` and `observe()`. `self[group]`, float32 [rows], is a
    number for each row, 0 for new ones, which follows the rows when some go; unless `scores()` is
    overridden it is the score.

        class Peak(ebb.Scorer):
            needs = ebb.Needs(mass="sum")

            def observe(self, group, positions, mass, keys, values):
                if mass is not None:
                    np.maximum(self[group], mass, out=self[group])

    One object serves one session; a class, or any callable without arguments that gives a scorer, is
    what sessions are opened with. An exception in any method ends the generation with that exception,
    and with it the session. Attributes, besides those named below: `shape` (ModelShape),
    `granularity`, `num_groups`, `seed`.
    """

    needs: ClassVar[Needs] = Needs()
    #: Whether keys of different steps are held against each other; such keys are never re-rotated.
    compares_keys: ClassVar[bool] = False
    #: Whether reading a prompt leaves nothing behind but rows with the number 0.
    ignores_prompts: ClassVar[bool] = False
    #: The step, during `observe()`; None otherwise.
    step: Step | None = None

    def _begin(self, shape: ModelShape, granularity: str, num_groups: int, seed: int) -> None:
        self._numbers = [np.zeros(256, np.float32) for _ in range(num_groups)]
        self._num_rows = [0] * num_groups
        super()._begin(shape, granularity, num_groups, seed)
        if self.needs == Needs() and type(self).observe is not Scorer.observe:
            warnings.warn(f"{self.name} has an observe(), which is never called since its `needs` ask for nothing: set "
                          'needs = ebb.Needs(mass="sum"), for example', stacklevel=2)

    def __getitem__(self, group: int) -> NDArray[np.float32]:
        return self._numbers[group][: self._num_rows[group]]

    def __setitem__(self, group: int, numbers: Any) -> None:
        self._numbers[group][: self._num_rows[group]] = numbers

    def observe(
        self,
        group: int,
        positions: NDArray[np.int32],
        mass: NDArray[np.float32] | None,
        keys: Any,
        values: Any,
    ) -> None:
        """Takes the signals of a step, called for every group in order; never if `needs` ask for nothing.

        The arrays are views of the engine's memory, read-only, for the time of the step. One that is
        kept beyond it, by itself or as a slice, ends the generation with `ebb.ViewKept`: keep
        `numpy.array(view)` instead.

        Args:
            group: from 0.
            positions: int32 [rows], ascending; the step's new tokens are the last ones.
            mass: float32 [rows] with Needs(mass="sum"), [heads, rows] by head; None where it was not
                asked for, and in prefill without `mass_in_prefill`.
            keys: float32 [layers of the group, new tokens, kv heads of the group, head_dim], after
                RoPE; where layers differ in their kv heads and the group has all of them, a tuple
                with such an array for each layer. None where not asked for.
            values: the same of values.
        """

    def scores(self, group: int) -> NDArray[np.float32]:
        """One finite number per row of the group, float32 [rows]; `self[group]` unless overridden."""
        return self[group]

    def append(self, group: int, positions: NDArray[np.int32]) -> None:
        """Tokens at `positions` joined the end of the group, before the step that computes them."""
        old = self._num_rows[group]
        new = old + len(positions)
        numbers = self._numbers[group]
        if new > len(numbers):
            self._numbers[group] = np.zeros(2 * new, np.float32)
            self._numbers[group][:old] = numbers[:old]
            numbers = self._numbers[group]
        numbers[old:new] = 0
        self._num_rows[group] = new

    def retain(self, group: int, kept: NDArray[np.uint32]) -> None:
        """Only the rows at these ascending indices are left, in this order."""
        self._numbers[group][: len(kept)] = self._numbers[group][kept]
        self._num_rows[group] = len(kept)

    def end_first_prefill(self) -> None:
        """The first prompt was read."""

    def save_state(self) -> bytes:
        """What `load_state()` of a new object needs to go on the same, for `Session.fork()` and
        `Session.save()`. Not there unless overridden; `super().rows_state()` has the numbers."""
        raise NotImplementedError

    def load_state(self, state: bytes) -> None:
        raise NotImplementedError

    def rows_state(self) -> bytes:
        """`self[group]` of all groups, for an own `save_state()`."""
        counts = np.array(self._num_rows, np.int64)
        return counts.tobytes() + b"".join(self[g].tobytes() for g in range(self.num_groups))

    def load_rows_state(self, state: bytes) -> None:
        """Takes what `rows_state()` gave."""
        counts = np.frombuffer(state, np.int64, self.num_groups)
        numbers = np.frombuffer(state, np.float32, offset=counts.nbytes)
        if counts.sum() != len(numbers) or (counts < 0).any():
            raise ValueError("the state of a scorer of other groups or rows")
        begin = 0
        for group, count in enumerate(counts.tolist()):
            self._numbers[group] = numbers[begin : begin + count].copy()
            self._num_rows[group] = count
            begin += count


class Placement(_Part):
    """Decides which rows go, or move between tiers, from scores and facts (`ebb.Facts`).

    One object serves one session. `scores` of the facts are those of the session's scorer.
    """

    #: False: nothing is scored.
    needs_scores: ClassVar[bool] = True

    def check(self, facts: Facts) -> str | None:
        """Why what must stay does not fit; None: it does. Asked before a prompt is read."""
        return None

    def due(self, facts: Facts, num_rows: int) -> bool:
        """Whether `place()` is to be called after this step, for a group of so many rows. Scores and
        positions of the facts may be empty."""
        return facts.is_decode

    def place(self, facts: Facts) -> Iterable[int | tuple[int, int]] | None:
        """The rows of the group that go, as indices into `facts.positions`. A pair (row, tier) moves a
        row: 0 and 1 full precision, 2 compressed, 3 evicted; where the engine has the tier."""
        raise NotImplementedError


class Attention(Scorer):
    """The built-in scorer `attention`, in Python: after each decode step the mean, over the layers
    whose attention is finite and over their query heads, of the probability that a row received
    ("Not All Thoughts Need HBM", 3.1, Eq. 1). Bit for bit the same scores."""

    name = "attention"
    needs = Needs(mass="sum")
    ignores_prompts = True

    def begin(self) -> None:
        heads = self.shape.num_q_heads
        if self.granularity == "head":
            of_layer = [self.shape.kv_heads(layer) for layer in range(self.shape.num_layers)]
            self._heads = [heads // n for n in of_layer for _ in range(n)]
        else:
            self._heads = [heads] * self.num_groups

    def observe(self, group, positions, mass, keys, values):  # noqa: D102
        layers = self.step.layers_counted(group)
        if mass is None or layers == 0 or not self.step.is_decode:
            return
        weight = np.float32(1) / (np.float32(layers) * np.float32(self._heads[group]))
        received = np.where(np.isfinite(mass), mass, np.float32(0))
        received *= weight
        self[group] += received

    def end_first_prefill(self) -> None:  # noqa: D102
        for group in range(self.num_groups):
            self[group] = 0

    def save_state(self) -> bytes:  # noqa: D102
        return self.rows_state()

    def load_state(self, state: bytes) -> None:  # noqa: D102
        self.load_rows_state(state)


class AttentionLog(Attention):
    """The scorer `Attention`, which also records the attention of every generated token, for
    `ebb.plots.attention()`.

        log = ebb.AttentionLog()
        session = model.session(policy="attention", budget="100%", scorer=lambda: log)
        session.generate(prompt).run()
        ebb.plots.attention(log)

    A step takes 8 bytes for each row that the group has.

    Args:
        group: whose attention is recorded; 0 is the whole model at the granularity of tokens.
    """

    def __init__(self, group: int = 0) -> None:
        self.group = group
        #: (position of the query, int32 [rows] positions, float32 [rows] probabilities) of each
        #: generated token. A probability is the mean over the layers and query heads of the group.
        self.steps: list[tuple[int, NDArray[np.int32], NDArray[np.float32]]] = []

    def observe(self, group, positions, mass, keys, values):  # noqa: D102
        super().observe(group, positions, mass, keys, values)
        if group != self.group or mass is None or not self.step.is_decode:
            return
        queries = self.step.num_tokens * self.step.layers_counted(group) * self._heads[group]
        shares = np.where(np.isfinite(mass), mass, 0) / np.float32(max(queries, 1))
        self.steps.append((int(positions[-1]), np.array(positions), shares.astype(np.float32)))

    def matrix(self) -> NDArray[np.float32]:
        """The attention of each generated token, in the order of `steps`, to each position: float32
        [steps, tokens], NaN for rows that were evicted and for later tokens."""
        tokens = max((query + 1 for query, _, _ in self.steps), default=0)
        attention = np.full((len(self.steps), tokens), np.nan, np.float32)
        for row, (_, positions, shares) in zip(attention, self.steps):
            row[positions] = shares
        return attention


class LagKey(Scorer):
    """The built-in scorer `lag_key`, in Python (EpiKV, 3.3 and 4.4): a token's key is normalised,
    channel by channel, by the range of the chunk of tokens before; the score is the variance of the
    result across the head dimension, mean over the streams of the group, computed when the token is
    read and then frozen. Bit for bit the same scores."""

    needs = Needs(keys=True)
    compares_keys = True
    chunk = 64

    def begin(self) -> None:
        self.name = f"lag_key:chunk={self.chunk}"
        self._tokens = [0] * self.num_groups
        self._previous: list[Any] = [None] * self.num_groups
        self._current: list[Any] = [None] * self.num_groups

    def observe(self, group, positions, mass, keys, values):  # noqa: D102
        layers = keys if isinstance(keys, tuple) else (keys,)
        tokens = layers[0].shape[1]
        # [tokens, streams, head_dim], streams layer by layer.
        streams = np.concatenate(
            [part.transpose(1, 0, 2, 3).reshape(tokens, -1, part.shape[-1]) for part in layers], axis=1
        )
        streams = np.where(np.isfinite(streams), streams, np.float32(0))
        scores = self[group][-tokens:]
        for t in range(tokens):
            x = streams[t]
            if self._current[group] is None or (self._tokens[group] % self.chunk == 0):
                self._previous[group] = self._current[group]
                self._current[group] = (x, x)
            low, high = self._current[group]
            self._current[group] = low, high = np.minimum(low, x), np.maximum(high, x)
            if self._tokens[group] >= self.chunk:
                low, high = self._previous[group]
            # Added up one after the other, as the engine does: numpy.sum() has another order.
            lowest = low.astype(np.float64)
            extent = high - lowest
            scaled = np.divide(x - lowest, extent, out=np.zeros_like(extent), where=extent > 0)
            total = np.add.accumulate(scaled, axis=1)[:, -1]
            squares = np.add.accumulate(scaled * scaled, axis=1)[:, -1]
            count = x.shape[1]
            variance = np.maximum(0, squares / count - total / count * total / count)
            sums = np.add.accumulate(variance.astype(np.float32))
            scores[t] = sums[-1] / np.float32(len(sums))
            self._tokens[group] += 1
