"""How much a turn may do: the operator's defaults, a tenant's own numbers within the operator's bounds."""

from dataclasses import dataclass

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction

from tenants import audit
from tenants.models import ApiToken, TenantSettings, User
from tenants.versions import raise_version

NAMES = {
    "max_cycles": "LLM_TOOL_MAX_ITERATIONS",
    "tool_timeout_s": "LLM_TOOL_TIMEOUT_SECS",
    "result_max_chars": "LLM_TOOL_RESULT_MAX_CHARS",
}


@dataclass(frozen=True, slots=True)
class ToolLimits:
    max_cycles: int
    tool_timeout_s: float
    result_max_chars: int


def limits(own: TenantSettings | None) -> ToolLimits:
    """A number beyond a bound that the operator lowered since counts as the bound."""

    def of(name: str) -> float:
        value = getattr(own, name, None)
        return min(getattr(settings, NAMES[name]) if value is None else value, bound(name))

    return ToolLimits(int(of("max_cycles")), of("tool_timeout_s"), int(of("result_max_chars")))


def bound(name: str) -> float:
    return float(getattr(settings, f"{NAMES[name]}_BOUND"))


@transaction.atomic
def set_limits(
    *,
    max_cycles: int | None,
    tool_timeout_s: float | None,
    result_max_chars: int | None,
    actor: User,
    token: ApiToken | None = None,
) -> None:
    """None takes the operator's default again. Raises ValidationError for a number out of bounds."""
    wanted = {"max_cycles": max_cycles, "tool_timeout_s": tool_timeout_s, "result_max_chars": result_max_chars}
    faults = {
        name: f"More than 0 and at most {bound(name):g}."
        for name, value in wanted.items()
        if value is not None and not 0 < value <= bound(name)
    }
    if faults:
        raise ValidationError({name: reason for name, reason in faults.items()})  # noqa: C416 - a dict of lazy kinds
    raise_version()  # makes the row, if there is none
    TenantSettings.objects.update(**wanted)
    audit.record("limits.set", object_type="settings", object_id="", actor=actor, token=token, detail=wanted)
