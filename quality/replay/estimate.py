"""What a replay will take, before it begins: from earlier samples where there are some, else from the requests' length.

Needs an open tenant scope.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.db.models import Avg, Count, Q
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from engine.providers.protocol import Usage
from quality.cases.sample import Verdict
from quality.languages import number
from quality.models import ReplaySample, ReplaySide
from quality.replay.sides import price_of

MAX_REPLAYS: Final = 20  # that earlier samples are taken from, newest first
CHARACTERS_A_TOKEN: Final = 4
COMPLETION_TOKENS: Final = 120  # of one answer
REQUEST_S: Final = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedCase:
    """How often a case is asked on each side, and how long its requests are, in characters."""

    case_id: int
    samples: int
    requests: int  # of one sample, as far as its expectation tells
    messages: int
    tools: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SideEstimate:
    """`cost` None: the endpoint has no price. `num_earlier` samples are what the numbers rest on; without any, the
    length of the requests."""

    name: str
    model_label: str
    samples: int
    requests: int
    prompt_tokens: int
    completion_tokens: int
    cost: float | None
    seconds: float
    num_earlier: int

    @property
    def basis(self) -> str:
        """What the numbers rest on, for programs."""
        if not self.num_earlier:
            return "from the length of the requests"
        return f"from {self.num_earlier:,} earlier samples of these cases and this model"

    @property
    def basis_words(self) -> str:
        """The same for people, in their language."""
        if not self.num_earlier:
            return _("from the length of the requests")
        return ngettext(
            "from %(count)s earlier sample of these cases and this model",
            "from %(count)s earlier samples of these cases and this model",
            self.num_earlier,
        ) % {"count": number(self.num_earlier)}

    @property
    def side_word(self) -> str:
        """Which side it is, for people."""
        return str(ReplaySide.Name(self.name).label).lower()

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

    @property
    def basis_words(self) -> str:
        return "; ".join(dict.fromkeys(side.basis_words for side in self.sides))

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


def estimated(asked: Sequence[AskedCase], sides: Sequence[ReplaySide], *, concurrency: int) -> Estimate:
    """What these cases will take on these sides."""
    return Estimate(cases=len(asked), sides=tuple(_side(asked, side, concurrency=concurrency) for side in sides))


def _side(asked: Sequence[AskedCase], side: ReplaySide, *, concurrency: int) -> SideEstimate:
    samples = sum(each.samples for each in asked)
    known = _earlier(asked, side)
    mean = known or _from_length(asked, side, samples)
    prompt, completion = round(mean.prompt_tokens * samples), round(mean.completion_tokens * samples)
    price = price_of(side)
    return SideEstimate(
        name=str(side.name),
        model_label=side.model_label,
        samples=samples,
        requests=round(mean.requests * samples),
        prompt_tokens=prompt,
        completion_tokens=completion,
        cost=price.of(Usage(prompt, completion)) if price else None,
        seconds=mean.seconds * samples / min(concurrency, max(1, samples)),
        num_earlier=known.count if known else 0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mean:
    """Of one sample."""

    count: int
    requests: float
    prompt_tokens: float
    completion_tokens: float
    seconds: float


def _earlier(asked: Sequence[AskedCase], side: ReplaySide) -> _Mean | None:
    """Of the samples in the newest replays with this model; None without any."""
    newest = ReplaySide.objects.filter(model=side.model, base_url=side.base_url).order_by("-replay")
    places = Q()
    for replay_id, name in newest.values_list("replay_id", "name")[:MAX_REPLAYS]:
        places |= Q(replay_id=replay_id, side=name)
    if not places:
        return None
    samples = ReplaySample.objects.filter(places, replay_case__case_id__in=[each.case_id for each in asked])
    found = samples.exclude(verdict=Verdict.ERROR).aggregate(
        count=Count("pk"),
        requests=Avg("requests"),
        prompt_tokens=Avg("prompt_tokens"),
        completion_tokens=Avg("completion_tokens"),
        duration_ms=Avg("duration_ms"),
    )
    if not found["count"]:
        return None
    return _Mean(seconds=found.pop("duration_ms") / 1000, **found)


def _from_length(asked: Sequence[AskedCase], side: ReplaySide, samples: int) -> _Mean:
    total = max(1, samples)
    requests = sum(each.samples * each.requests for each in asked) / total
    own_tools = None if side.tools is None else len(side.tools)
    characters = sum(
        each.samples * each.requests * (each.messages + (each.tools if own_tools is None else own_tools))
        for each in asked
    )
    characters += round(requests * total) * len(side.system_prompt or "")
    return _Mean(
        count=0,
        requests=requests,
        prompt_tokens=characters / CHARACTERS_A_TOKEN / total,
        completion_tokens=requests * COMPLETION_TOKENS,
        seconds=requests * REQUEST_S,
    )
