"""Answers that come token by token."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, AsyncIterator, Iterator


@dataclass(frozen=True)
class Move:
    """A row that changed its tier after a step.

    Attributes:
        group: which group of (layer, kv head) pairs; 0 at the granularity of tokens.
        position: of the token, from 0.
        source, target: 0 fast memory, 1 capacity memory, 2 compressed, 3 evicted.
    """

    group: int
    position: int
    source: int
    target: int


@dataclass(frozen=True)
class Token:
    """A generated token, after the step that it was read by.

    Attributes:
        id: in the vocabulary; None for text that was held back until the end.
        text: what became certain with it: never half a UTF-8 character nor part of a stop text, so
            that it may belong to tokens before, or be empty.
        is_thought: whether the text belongs to the thought.
        moves: rows that changed their tier after the step, evicted ones among them; empty without a
            ledger.
        rows_evicted: (layer, kv head, token) triples that went after the step.
    """

    id: int | None
    text: str
    is_thought: bool
    moves: list[Move] = field(repr=False)
    rows_evicted: int

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Result:
    """How a generation ended.

    Attributes:
        text: of the whole answer, its thought included.
        thought, answer: the two parts of it, tags included.
        finish_reason: "stop", "stop_string", "length", "context", "cap", "cancelled" or "error".
        error: why, for "context", "cap" and "error".
        generated_tokens: the end token is not counted.
        thought_tokens: of them, between the tags of the thought.
        decode_steps: of one or, lossless, several tokens.
        seconds: of the decode steps.
        content, reasoning_content: of a chat's answer, without tags.
    """

    text: str
    thought: str
    answer: str
    finish_reason: str
    error: str | None
    generated_tokens: int
    thought_tokens: int
    decode_steps: int
    seconds: float
    content: str | None = None
    reasoning_content: str | None = None

    def __str__(self) -> str:
        return self.text


class Generation:
    """An answer that comes token by token.

    Iterate over it, or `run()` it to its end. The step that reads a token is computed before the
    token is yielded, without the interpreter's lock. Ctrl-C, `close()` and leaving the loop end it
    between two steps: the session then ends with the last token that was yielded.
    """

    def __init__(self, core: Any) -> None:
        self._core = core
        self._result: Result | None = None

    def __iter__(self) -> Iterator[Token]:
        return self

    def __next__(self) -> Token:
        item = self._core.next()
        if item is None:
            raise StopIteration
        token, text, is_thought, moves, rows_evicted = item
        return Token(token, text, is_thought, [Move(*move) for move in moves], rows_evicted)

    async def __aiter__(self) -> AsyncIterator[Token]:
        """Runs each step on another thread, so that the step does not block the event loop."""
        while (token := await asyncio.to_thread(next, self, None)) is not None:
            yield token

    def __repr__(self) -> str:
        return f"<ebb.Generation{', ended' if self._core.has_ended else ''}>"

    def run(self) -> Result:
        """Generates to the end."""
        while self._core.next() is not None:
            pass
        return self.result

    def end_thought(self) -> None:
        """Ends the thought with the next token."""
        self._core.end_thought()

    def close(self) -> None:
        """Ends the generation after the tokens generated so far."""
        self._core.end()

    @property
    def result(self) -> Result:
        """What came of it; a generation that has not ended is ended."""
        if self._result is None:
            self._result = Result(**self._core.end())
        return self._result
