"""What one turn may use, and what it has used."""

import math
from dataclasses import dataclass
from typing import Literal

from engine.providers.protocol import Usage
from engine.records import ReplyRecord
from engine.tools import RESULT_LIMIT, TIMEOUT_S


@dataclass(frozen=True, slots=True)
class Price:
    """Money for a million tokens, in any currency: the limit is in the same."""

    prompt: float = 0.0
    completion: float = 0.0

    def of(self, usage: Usage) -> float:
        return (usage.prompt_tokens * self.prompt + usage.completion_tokens * self.completion) / 1e6


@dataclass(frozen=True, slots=True)
class Limits:
    """None: no limit. `wall_time_s` counts from the start of `run_turn`, a turn that is taken up again included.

    `identical_calls`: the call that would be the n-th with the same name and arguments is not run (0: never mind).
    `on_exhaustion`: what follows the last cycle, no content or one last answer without tools.
    """

    max_cycles: int = 4
    max_calls: int | None = 32
    max_tokens: int | None = None
    max_bytes: int | None = None
    max_cost: float | None = None
    price: Price = Price()
    wall_time_s: float = 300.0
    tool_timeout_s: float = TIMEOUT_S
    result_max_chars: int = RESULT_LIMIT
    identical_calls: int = 3
    on_exhaustion: Literal["null", "answer"] = "null"


class Budget:
    """Counts what a turn uses up."""

    def __init__(self, limits: Limits) -> None:
        self.usage = Usage()
        self.num_bytes = 0
        self.num_calls = 0
        self._limits = limits

    def add_reply(self, reply: ReplyRecord) -> None:
        self.usage += reply.usage
        self.num_bytes += reply.num_bytes

    def take_call(self) -> bool:
        """Counts one more call, if one more is allowed."""
        if self._limits.max_calls is not None and self.num_calls >= self._limits.max_calls:
            return False
        self.num_calls += 1
        return True

    def spent(self) -> str | None:
        """What the replies have used up, in words; None while something of each is left."""
        limits = self._limits
        used = {
            "tokens": (self.usage.total_tokens, limits.max_tokens),
            "bytes": (self.num_bytes, limits.max_bytes),
            "money": (limits.price.of(self.usage), limits.max_cost),
        }
        for name, (amount, limit) in used.items():
            if amount >= (math.inf if limit is None else limit):
                return f"{amount:,.10g} of {limit:,.10g} {name} used"
        return None
