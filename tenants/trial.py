"""Trying an HTTP tool by hand: the same checks, guard, secrets and limits as in a turn."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.net import Guard
from engine.redaction import Redactor
from engine.tools import Registry, ToolContext, ToolOutcome
from engine.tools.definitions import HttpDefinition
from engine.tools.http import HttpTool
from tenants import audit, outbound, secrets
from tenants.limits import ToolLimits, limits
from tenants.models import TenantSettings, User
from tenants.tools import place_of, secret_names


@dataclass(frozen=True, slots=True)
class Trial:
    """What a trial needs, read in one scope; `run` then happens outside of it."""

    definition: HttpDefinition
    guard: Guard
    limits: ToolLimits
    values: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Tried:
    outcome: ToolOutcome
    duration_ms: int


def prepare(definition: HttpDefinition, *, actor: User) -> Trial:
    """In the tenant's scope. The trial and its secrets are put on record. Raises envelope.SecretInvalid."""
    run = f"trial by {actor.email}"
    values = secrets.read_for_tool(place_of(definition), secret_names(definition), run=run)
    audit.record("tool.tried", object_type="tool", object_id=definition.name, actor=actor)
    return Trial(definition, outbound.guard(), limits(TenantSettings.objects.first()), values)


def run(trial: Trial, arguments: Mapping[str, Any]) -> Tried:
    """Call the tool once. Its failures are outcomes, too."""
    started = time.monotonic()
    context = ToolContext(
        deadline=started + trial.limits.tool_timeout_s,
        result_limit=trial.limits.result_max_chars,
        idempotency_key=f"trial:{time.time_ns()}",
        secrets=trial.values.get,
        redactor=Redactor(trial.values),
    )
    registry = Registry([HttpTool(trial.definition, trial.guard)])
    outcome = asyncio.run(registry.run(trial.definition.name, dict(arguments), context))
    return Tried(outcome, round((time.monotonic() - started) * 1000))
