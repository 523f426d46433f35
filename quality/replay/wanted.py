"""What a replay is asked to do, as values and as JSON: cases, one side or two, how it runs.

JSON is read strictly: what is unknown or out of bounds raises a ValidationError that names the member, as in
`sides.0.modelLabel`.
"""

import re
from typing import Annotated, Any, Final, Literal, Self

import msgspec
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _
from msgspec import Meta, Struct

from quality.cases.budgets import Allowance
from quality.cases.replay import Settings
from quality.cases.stubs import OnMiss

MAX_SAMPLES: Final = 100  # of one case on one side
MAX_CONCURRENCY: Final = 32
MAX_REFS: Final = 5_000

_UNSTORABLE: Final = re.compile("[\0\ud800-\udfff]")

type Count = Annotated[int, Meta(ge=1, le=10**12)]
type Amount = Annotated[float, Meta(gt=0, le=10**12)]


class _Spec(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    @classmethod
    def from_json(cls, given: Any, *, path: str = "") -> Self:
        """Read JSON values. `path` leads the names of members in the ValidationError that may be raised."""
        try:
            found = msgspec.convert(given, cls)
        except msgspec.ValidationError as error:
            message, _, place = str(error).partition(" - at `$")
            name = ".".join(filter(None, [path, *re.findall(r"[\w]+", place)])) or "__all__"
            raise ValidationError({name: ValidationError(f"{message}.", code="invalid")}) from error
        _refuse_unstorable(found, path)
        return found

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


def _refuse_unstorable(value: Any, path: str) -> None:
    """Characters that no row can hold."""
    match value:
        case str():
            if _UNSTORABLE.search(value):
                message = _("It holds a null character, or half of a character. Take it out.")
                raise ValidationError({path: ValidationError(message, code="invalid_character")})
        case _Spec():
            for name, member in zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True):
                _refuse_unstorable(getattr(value, name), f"{path}.{member}" if path else member)
        case tuple():
            for place, each in enumerate(value):
                _refuse_unstorable(each, f"{path}.{place}")


class Budget(_Spec, frozen=True):
    """What may be used up. None: no limit. `cost` is in the currency of the prices, `time` in seconds of work."""

    calls: Count | None = None
    tokens: Count | None = None
    cost: Amount | None = None
    time: Amount | None = None

    @property
    def allowance(self) -> Allowance:
        return Allowance(self.calls, self.tokens, self.cost, self.time)


class SideSpec(_Spec, frozen=True):
    """What is tried: the endpoint with this label; with the prompt of a style (empty: as recorded in each case) in one
    of its versions (None: the newest); with the tools as `recorded`, as they are today (`current`), or those of a
    stored toolset, named by its SHA-256."""

    model_label: Annotated[str, Meta(min_length=1, max_length=200)]
    style_id: Annotated[str, Meta(max_length=200)] = ""
    style_version: Annotated[int, Meta(ge=1)] | None = None
    tools: Annotated[str, Meta(max_length=64)] = "recorded"


class RunSettings(_Spec, frozen=True):
    """How a replay runs. `samples` None: what each case asks for, else one. `seed` None: none is sent. `confirm`: with
    two sides, cases that got worse are run again with fresh samples. `judge_label`: the endpoint that judges what no
    matcher can; empty: nobody does."""

    samples: Annotated[int, Meta(ge=1, le=MAX_SAMPLES)] | None = None
    concurrency: Annotated[int, Meta(ge=1, le=MAX_CONCURRENCY)] = 4
    max_cycles: Annotated[int, Meta(ge=1, le=32)] = 8
    on_miss: Literal["stop", "fifo", "error", "fixed"] = "stop"
    miss_result: Annotated[str, Meta(max_length=20_000)] = ""
    seed: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = 1
    budget: Budget = Budget()
    case_budget: Budget = Budget()
    confirm: bool = True
    judge_label: Annotated[str, Meta(max_length=200)] = ""

    def of_runner(self, *, sample_time_s: float) -> Settings:
        """As the runner of `quality.cases.replay` takes them."""
        return Settings(
            samples=self.samples,
            seed=self.seed,
            concurrency=self.concurrency,
            max_cycles=self.max_cycles,
            sample_time_s=sample_time_s,
            on_miss=OnMiss(self.on_miss),
            miss_result=self.miss_result,
            run_budget=self.budget.allowance,
            case_budget=self.case_budget.allowance,
        )


class Wanted(_Spec, frozen=True):
    """A replay as it is asked for. `cases` names some (numbers, or REG-<number>), archived ones too; without it `query`
    chooses among the active ones, spelled as on the page of cases. Of two sides the first is the baseline; one side may
    be compared with `baseline_replay_id`."""

    sides: Annotated[tuple[SideSpec, ...], Meta(min_length=1, max_length=2)]
    query: Annotated[str, Meta(max_length=4_000)] = ""
    cases: Annotated[tuple[int | str, ...], Meta(max_length=MAX_REFS)] = ()
    settings: RunSettings = RunSettings()
    name: Annotated[str, Meta(max_length=120)] = ""
    baseline_replay_id: Annotated[int, Meta(ge=1)] | None = None
