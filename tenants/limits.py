"""How much a turn may do: the operator's defaults, a tenant's own numbers within the operator's bounds."""

import math
from dataclasses import dataclass
from decimal import Decimal

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils.formats import number_format
from django.utils.translation import gettext as _

from tenants import audit
from tenants.models import ApiToken, TenantSettings, User
from tenants.versions import raise_version

# What is limited, and the setting of the operator: a default whose bound is `…_BOUND` …
NAMES = {
    "max_cycles": "LLM_TOOL_MAX_ITERATIONS",
    "tool_timeout_s": "LLM_TOOL_TIMEOUT_SECS",
    "result_max_chars": "LLM_TOOL_RESULT_MAX_CHARS",
}
# … or a budget, which is default and bound in one; 0: the operator sets none.
BUDGETS = {
    "max_calls": "TURN_MAX_CALLS",
    "max_tokens": "TURN_MAX_TOKENS",
    "max_cost": "TURN_MAX_COST",
    "wall_time_s": "TURN_WALL_TIME_S",
}
ALL = (*NAMES, *BUDGETS)
MOST = 1e12  # beyond any use, and still a number that a row holds


@dataclass(frozen=True, slots=True)
class ToolLimits:
    """None: no limit."""

    max_cycles: int
    tool_timeout_s: float
    result_max_chars: int
    max_calls: int | None = 32
    max_tokens: int | None = None
    max_cost: float | None = None
    wall_time_s: float = 300.0


def limits(own: TenantSettings | None) -> ToolLimits:
    """A number beyond a bound that the operator lowered since counts as the bound."""

    def of(name: str) -> float:
        value = getattr(own, name, None)
        if value is None:
            value = getattr(settings, NAMES[name]) if name in NAMES else bound(name)
        return float(min(value, bound(name)))

    def whole(name: str) -> int | None:
        return None if of(name) == math.inf else int(of(name))

    return ToolLimits(
        max_cycles=int(of("max_cycles")),
        tool_timeout_s=of("tool_timeout_s"),
        result_max_chars=int(of("result_max_chars")),
        max_calls=whole("max_calls"),
        max_tokens=whole("max_tokens"),
        max_cost=None if of("max_cost") == math.inf else of("max_cost"),
        wall_time_s=of("wall_time_s"),
    )


def bound(name: str) -> float:
    """The most that a tenant may set; infinite where the operator sets no budget."""
    if name in NAMES:
        return float(getattr(settings, f"{NAMES[name]}_BOUND"))
    return float(getattr(settings, BUDGETS[name])) or math.inf


def _out_of_bounds(most: float) -> str:
    if most == math.inf:
        return _("More than 0.")
    # Django rounds nothing here, and 10 digits are more than any bound has.
    told = number_format(Decimal(f"{most:.10g}"))
    return _("More than 0 and at most %(limit)s.") % {"limit": told}


@transaction.atomic
def set_limits(
    *,
    max_cycles: int | None,
    tool_timeout_s: float | None,
    result_max_chars: int | None,
    max_calls: int | None = None,
    max_tokens: int | None = None,
    max_cost: float | None = None,
    wall_time_s: float | None = None,
    actor: User,
    token: ApiToken | None = None,
) -> None:
    """None takes the operator's default again. Raises ValidationError for a number out of bounds."""
    wanted = {
        "max_cycles": max_cycles,
        "tool_timeout_s": tool_timeout_s,
        "result_max_chars": result_max_chars,
        "max_calls": max_calls,
        "max_tokens": max_tokens,
        "max_cost": max_cost,
        "wall_time_s": wall_time_s,
    }
    faults = {
        name: _out_of_bounds(bound(name))
        for name, value in wanted.items()
        if value is not None and not (0 < value <= min(bound(name), MOST))
    }
    if faults:
        raise ValidationError({name: reason for name, reason in faults.items()})  # noqa: C416 - a dict of lazy kinds
    raise_version()  # makes the row, if there is none
    TenantSettings.objects.update(**wanted)
    audit.record("limits.set", object_type="settings", object_id="", actor=actor, token=token, detail=wanted)
