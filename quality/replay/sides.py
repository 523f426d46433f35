"""The sides of a replay: endpoint, prompt and tools, frozen when it is started, opened with a key when it is run."""

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, Final

from django.conf import settings
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from engine.limits import Price
from engine.strict_json import read_json
from engine.tools import FunctionTool, Mode, Registry, Tool
from engine.tools.booking import booking_tool
from engine.tools.database import database_tool
from engine.tools.exchange import exchange_tools
from quality.cases.conversation import NotReplayable, tools_of
from quality.cases.replay import Endpoint, Side
from quality.models import Replay, ReplaySide, Toolset
from quality.replay.wanted import SideSpec
from tenants import catalogue, databases, endpoints, outbound, scripts, styles
from tenants.envelope import SecretInvalid
from tenants.exchange import DeskStore
from tenants.models import ModelEndpoint, Skill, Style, StyleVersion, TenantSettings

BASELINE: Final = ReplaySide.Name.BASELINE
CANDIDATE: Final = ReplaySide.Name.CANDIDATE


class SideUnusable(Exception):
    """A side can no longer be asked as it was frozen; the text says what to do."""


def names_of(specs: Sequence[SideSpec]) -> list[ReplaySide.Name]:
    """Of two sides the first is the baseline."""
    return [BASELINE, CANDIDATE][-len(specs) :]


def frozen(specs: Sequence[SideSpec]) -> list[ReplaySide]:
    """The sides as they are now, not saved yet. Raises ValidationError with names such as `sides.0.modelLabel`."""
    return [
        _frozen(spec, name, f"sides.{place}")
        for place, (spec, name) in enumerate(zip(specs, names_of(specs), strict=True))
    ]


def endpoint_of(label: str, path: str) -> ModelEndpoint:
    """The enabled endpoint with this label; the ValidationError names `path`."""
    enabled = ModelEndpoint.objects.filter(is_enabled=True).order_by("pk")
    found = enabled.filter(label=label).first()
    if found is None:
        known = ", ".join(enabled.values_list("label", flat=True)) or _("none; add one under Models")
        raise _fault(
            path,
            "no_such_model",
            _("There is no enabled model %(label)s. Known: %(known)s.") % {"label": repr(label), "known": known},
        )
    return found


def price_of(endpoint: ModelEndpoint | ReplaySide) -> Price | None:
    """None where nobody set one."""
    if not (endpoint.price_prompt or endpoint.price_completion):
        return None
    return Price(endpoint.price_prompt, endpoint.price_completion)


def opened(replay: Replay) -> list[Side]:
    """The sides as they are asked, with their keys, each read of which is audited. Raises SideUnusable."""
    return [_opened(side) for side in sides_of(replay)]


def sides_of(replay: Replay) -> list[ReplaySide]:
    """Baseline first."""
    return list(ReplaySide.objects.filter(replay=replay).order_by("name"))


def read_tools(side: ReplaySide) -> Any:
    """The tools that are offered in place of those recorded; None: the recorded ones."""
    return None if side.tools is None else read_json(side.tools)


# Freezing.


def _frozen(spec: SideSpec, name: ReplaySide.Name, path: str) -> ReplaySide:
    endpoint = endpoint_of(spec.model_label, f"{path}.modelLabel")
    version = _style_version(spec, path)
    text = styles.text_of(version) if version else None
    side = ReplaySide(
        name=name,
        endpoint_id=endpoint.pk,
        model_label=endpoint.label,
        base_url=endpoint.base_url,
        model=endpoint.model,
        parameters=endpoint.parameters,
        price_prompt=endpoint.price_prompt,
        price_completion=endpoint.price_completion,
        style_id=spec.style_id,
        style_version=version.number if version else None,
        system_prompt=text.system() if text else None,
    )
    _add_tools(side, spec, _names_of(text), f"{path}.tools")
    side.same_sha256 = _same_sha256(side)
    return side


def _style_version(spec: SideSpec, path: str) -> StyleVersion | None:
    if not spec.style_id:
        if spec.style_version is not None:
            raise _fault(f"{path}.styleVersion", "no_style", _("Name the style, or leave its version out."))
        return None
    style = Style.objects.filter(style_id=spec.style_id).first()
    if style is None:
        raise _fault(
            f"{path}.styleId",
            "no_such_style",
            _("There is no style %(style_id)s. Add it under Styles.") % {"style_id": repr(spec.style_id)},
        )
    number = spec.style_version or style.version
    version = StyleVersion.objects.filter(style=style, number=number).first()
    if version is None:
        message = _("Style %(style_id)s has no version %(number)s; its newest is %(version)s.") % {
            "style_id": spec.style_id,
            "number": number,
            "version": style.version,
        }
        raise _fault(f"{path}.styleVersion", "no_such_version", message)
    return version


def _names_of(text: styles.StyleText | None) -> frozenset[str] | None:
    """The tools that a style may offer; None: all."""
    if text is None or not text.skills:
        return None
    skills = Skill.objects.filter(name__in=text.skills)
    return frozenset(tool for skill in skills for tool in skill.tools)


def _add_tools(side: ReplaySide, spec: SideSpec, names: Collection[str] | None, path: str) -> None:
    match spec.tools:
        case "recorded":
            side.tools_from = ReplaySide.Tools.RECORDED
        case "current":
            side.tools_from, side.tools = ReplaySide.Tools.CURRENT, json.dumps(todays_tools(names), ensure_ascii=False)
        case sha256:
            side.tools_from, side.toolset = ReplaySide.Tools.STORED, Toolset.objects.filter(sha256=sha256).first()
            if side.toolset is None:
                message = _("%(sha256)s is no stored toolset. Give its SHA-256, or recorded, or current.")
                message %= {"sha256": repr(sha256)}
                raise _fault(path, "no_such_toolset", message)
            side.tools = side.toolset.tools
    if side.tools is not None:
        try:
            tools_of(side.tools)
        except NotReplayable as error:
            raise _fault(
                path, "no_tools", _("These tools cannot be offered: %(why)s. Choose others.") % {"why": error}
            ) from error


def todays_tools(names: Collection[str] | None) -> list[dict[str, Any]]:
    """What a turn would be offered today. They are described and never run: no secret is read for them."""
    own = TenantSettings.objects.first()
    tools: list[Tool] = [*scripts.loaded()[0], *exchange_tools(DeskStore(0), ""), booking_tool(catalogue.EXAMPLE_LINK)]
    if chosen := databases.databases(own.databases if own is not None else ()):
        tools.append(database_tool(chosen))
    built_in = {tool.name: tool for tool in tools}
    offered = []
    for entry in catalogue.catalogue():
        tool = entry.definition or built_in.get(entry.name)
        if tool is not None and entry.is_enabled and (names is None or entry.name in names):
            offered.append(FunctionTool(tool.name, tool.description, tool.parameters, None, Mode.CLIENT))
    return Registry(offered).offers()


def _same_sha256(side: ReplaySide) -> str:
    asked = [side.base_url, side.model, side.parameters, side.system_prompt, read_tools(side)]
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


def _fault(path: str, code: str, message: str) -> ValidationError:
    return ValidationError({path: ValidationError(message, code=code)})


# Opening.


def without_key(side: ReplaySide) -> Side:
    """A side as reports tell of it."""
    return Side(
        name=side.name,
        endpoint=Endpoint(
            base_url=side.base_url,
            model=side.model,
            parameters=side.parameters,
            price=price_of(side),
            timeout_s=settings.MODEL_TIMEOUT_S,
        ),
        system_prompt=side.system_prompt,
        tools=read_tools(side),
    )


def _opened(side: ReplaySide) -> Side:
    told = without_key(side)
    return replace(told, endpoint=replace(told.endpoint, key=_key_of(side)))


def _key_of(side: ReplaySide) -> str | None:
    """The endpoint's key. It belongs to one server: an endpoint that was moved to another one since has none for it."""
    endpoint = ModelEndpoint.objects.filter(pk=side.endpoint_id).first()
    if endpoint is None or not endpoint.is_enabled:
        told = "is gone" if endpoint is None else "is switched off"
        raise SideUnusable(f"The model {side.model_label} {told}. Bring it back and retry, or start with another one.")
    if outbound.origin(endpoint.base_url) != outbound.origin(side.base_url):
        raise SideUnusable(
            f"The model {side.model_label} was moved to another server since. Start a replay that asks it there."
        )
    try:
        return endpoints.read_key(endpoint.pk, run=f"replay:{side.replay_id}")
    except SecretInvalid as error:
        raise SideUnusable(f"The key of {side.model_label} cannot be read. Set it again, then retry.") from error
