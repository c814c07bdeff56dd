"""What reports need to know of the built-in policies, so that they run without the compiled module.

policies.json holds a part of `ebb.policies()`; a test compares the two.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path


@lru_cache(maxsize=None)
def _policies() -> dict[str, dict[str, str]]:
    facts: dict[str, dict[str, str]] = json.loads(Path(__file__).with_name("policies.json").read_text("utf-8"))
    return facts


def scorer_of(policy: str) -> str:
    """The scorer of a built-in policy; "" for another."""
    return _policies().get(policy, {}).get("scorer", "")


def percent_base_of(policy: str) -> str:
    """The number that a budget of a built-in policy in percent is a share of; "": it takes none, or is no such policy."""
    return _policies().get(policy, {}).get("percent_of", "")
