"""What a run of replays may use up, and what it has."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from engine.errors import EngineError
from engine.limits import Price
from engine.providers.protocol import Usage

NAMES: Final = ("calls", "tokens", "cost", "time")


class OutOfBudget(EngineError):
    """Nothing more may be asked: the sample ends as an error, and the run is incomplete."""


class BadBudget(EngineError):
    """A budget that says nothing, or cannot be kept."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """None: no limit. `cost` is in the currency of the prices, `time` in seconds."""

    calls: int | None = None
    tokens: int | None = None
    cost: float | None = None
    time: float | None = None

    @classmethod
    def read(cls, text: str) -> "Allowance":
        """From `calls=200,tokens=1e6,cost=2.5,time=600`; raises `BadBudget`."""
        found: dict[str, float] = {}
        for part in filter(None, (part.strip() for part in text.split(","))):
            name, _, amount = part.partition("=")
            try:
                found[name.strip()] = value = float(amount)
            except ValueError:
                value = -1
            if name.strip() not in NAMES or not 0 <= value < 1e15:
                raise BadBudget(f"{part!r} is no budget. Write for instance calls=200,tokens=1e6,cost=2.5,time=600.")
        whole = {name: int(value) for name, value in found.items() if name in ("calls", "tokens")}
        return cls(**whole, cost=found.get("cost"), time=found.get("time"))


@dataclass(frozen=True, slots=True)
class Spent:
    """What was used before: a run that goes on has only the rest."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0
    time: float = 0.0


NOTHING: Final = Spent()


class Budget:
    """Counts what is used. Calls are counted when they begin; tokens are known only after, so samples that run at the
    same time may exceed them by what they have under way."""

    def __init__(
        self, of: str, allowed: Allowance, clock: Callable[[], float] = time.monotonic, *, spent: Spent = NOTHING
    ) -> None:
        self.of, self.allowed = of, allowed
        self.num_calls = spent.calls
        self.usage = Usage(spent.prompt_tokens, spent.completion_tokens)
        self.cost = spent.cost
        self._clock = clock
        self._started = clock() - spent.time

    def time_left_s(self) -> float:
        if self.allowed.time is None:
            return float("inf")
        return max(0.0, self.allowed.time - (self._clock() - self._started))

    def check(self) -> None:
        """Raises `OutOfBudget`."""
        allowed = self.allowed
        for name, used, most in (
            ("calls to the model", self.num_calls, allowed.calls),
            ("tokens", self.usage.total_tokens, allowed.tokens),
            ("money", self.cost, allowed.cost),
        ):
            if most is not None and used >= most:
                raise OutOfBudget(f"budget: {used:,.10g} of {most:,.10g} {name} used by {self.of}")
        if self.time_left_s() <= 0:
            raise OutOfBudget(f"budget: the {allowed.time:g} s of {self.of} are over")

    def begin_call(self) -> None:
        self.check()
        self.num_calls += 1

    def add_calls(self, more: int) -> None:
        """Requests that were made again on the way."""
        self.num_calls += more

    def add(self, usage: Usage, price: Price | None = None) -> None:
        self.usage += usage
        self.cost += price.of(usage) if price else 0.0
