"""What a replay will take, before it begins: from earlier samples where there are some, else from the requests' length.

Needs an open tenant scope.
"""

from dataclasses import dataclass
from typing import Any

from quality.replay.wanted import Wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class SideEstimate:
    """`cost` None: the endpoint has no price. `basis` says what the numbers rest on."""

    name: str
    model_label: str
    samples: int
    requests: int
    prompt_tokens: int
    completion_tokens: int
    cost: float | None
    seconds: float
    basis: str

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "modelLabel": self.model_label,
            "samples": self.samples,
            "requests": self.requests,
            "promptTokens": self.prompt_tokens,
            "completionTokens": self.completion_tokens,
            "cost": self.cost,
            "seconds": self.seconds,
            "basis": self.basis,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """All sides together; suspects that are run again come on top."""

    cases: int
    sides: tuple[SideEstimate, ...]

    @property
    def samples(self) -> int:
        return sum(side.samples for side in self.sides)

    @property
    def requests(self) -> int:
        return sum(side.requests for side in self.sides)

    @property
    def prompt_tokens(self) -> int:
        return sum(side.prompt_tokens for side in self.sides)

    @property
    def completion_tokens(self) -> int:
        return sum(side.completion_tokens for side in self.sides)

    @property
    def cost(self) -> float | None:
        """None: no endpoint has a price."""
        costs = [side.cost for side in self.sides if side.cost is not None]
        return sum(costs) if costs else None

    @property
    def seconds(self) -> float:
        return sum(side.seconds for side in self.sides)

    @property
    def basis(self) -> str:
        return "; ".join(dict.fromkeys(side.basis for side in self.sides))

    def as_dict(self) -> dict[str, Any]:
        return {
            "cases": self.cases,
            "samples": self.samples,
            "requests": self.requests,
            "promptTokens": self.prompt_tokens,
            "completionTokens": self.completion_tokens,
            "cost": self.cost,
            "seconds": self.seconds,
            "basis": self.basis,
            "sides": [side.as_dict() for side in self.sides],
        }


def estimate(wanted: Wanted) -> Estimate:
    """Raises ValidationError as `start` does, but for what only a start needs."""
    raise NotImplementedError
