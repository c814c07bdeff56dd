"""What a model file says of its marks (docs/dev/formats.md, "Models that mark rows").

Needs no torch.
"""

import dataclasses

QUERY = "query_last_channel"
ADAPTER = "adapter"


@dataclasses.dataclass(frozen=True)
class Marks:
    """Where the logits are, and which rows they decide on."""
    layout: str = QUERY
    window: int = 16
    scale: float = 100.0
    offset: float = 5.0
    shift: int = 1

    def __post_init__(self):
        if self.layout not in (QUERY, ADAPTER):
            raise ValueError(f"layout {self.layout!r}: expected {QUERY!r} or {ADAPTER!r}")
        if self.window < 1:
            raise ValueError(f"window {self.window}: expected at least 1")
        if not 0 <= self.shift <= self.window:
            raise ValueError(f"shift {self.shift}: expected 0 to the window, {self.window}")

    def logits(self, channels):
        """channels: a tensor, [batch, kv heads, tokens]."""
        return channels.float() * self.scale - self.offset
