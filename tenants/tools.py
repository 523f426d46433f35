"""HTTP tools that a tenant keeps: validated whole, with a history, imported and exported as an array."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.utils.formats import number_format
from django.utils.translation import gettext as _

from engine import net
from engine.errors import ToolError
from engine.tools.definitions import DefinitionsError, HttpDefinition, definition_faults, read_definitions
from tenants import audit, outbound, secrets
from tenants.active import MAX_TOOLS, active
from tenants.models import ApiToken, HttpToolRow, HttpToolVersion, Secret, ToolSwitch, User
from tenants.secrets import Place
from tenants.versions import raise_version

RESERVED = frozenset(
    (
        "offer_booking_link", "ask_database", "get_exchange_business_info", "compute_exchange_quote",
        "check_exchange_verification", "create_exchange_order", "fetch_exchange_requisites", "verify_exchange_payment",
        "issue_exchange_payout",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Saved:
    """A tool as it was saved. `missing` are secrets that it refers to and may not send (yet)."""

    row: HttpToolRow
    missing: list[str]


def definition_of(row: HttpToolRow | HttpToolVersion) -> HttpDefinition:
    return HttpDefinition.from_json(json.loads(row.definition))


def secret_names(definition: HttpDefinition) -> list[str]:
    """The secrets that its headers refer to."""
    found: set[str] = set()
    for name, value in definition.headers.items():
        try:
            found |= net.parse_header_template(name, value).secrets
        except net.Refused:  # a stored definition that no longer holds is refused when it runs
            continue
    return sorted(found)


def place_of(definition: HttpDefinition) -> Place:
    """Where the tool sends what it sends."""
    try:
        at = net.parse_url_template(definition.url).origin
    except net.Refused:
        return Place(definition.name, "")
    return Place(definition.name, f"{at.scheme}://{at.host}:{at.port}")


@transaction.atomic
def save_tool(
    item: Any,
    *,
    actor: User,
    token: ApiToken | None = None,
    pk: int | None = None,
    is_enabled: bool | None = None,
) -> Saved:
    """Make a tool, or give the one with this `pk` another definition, which is judged as a whole.

    Raises DefinitionsError with every fault, HttpToolRow.DoesNotExist.
    """
    if faults := definition_faults([item], outbound.policy()):
        raise DefinitionsError(faults)
    definition = HttpDefinition.from_json(item)
    _check_name(definition.name, pk)
    row = HttpToolRow(version=0) if pk is None else HttpToolRow.objects.select_for_update().get(pk=pk)
    old_name, text = row.name, written(item)
    if is_enabled is not None:
        row.is_enabled = is_enabled
    if row.definition != text:
        row.name, row.definition, row.version = definition.name, text, row.version + 1
        row.save()
        HttpToolVersion.objects.create(tool=row, number=row.version, definition=text, by=actor)
    else:
        row.save()
    if old_name and old_name != row.name:
        secrets.remove_tool(old_name)
    missing = secrets.place_tool(place_of(definition), secret_names(definition))
    _changed("tool.created" if pk is None else "tool.changed", row, actor, token)
    return Saved(row, missing)


@transaction.atomic
def switch_tool(*, row: HttpToolRow, is_enabled: bool, actor: User, token: ApiToken | None = None) -> None:
    row.is_enabled = is_enabled
    row.save(update_fields=["is_enabled", "updated_at"])
    _changed("tool.enabled" if is_enabled else "tool.disabled", row, actor, token)


@transaction.atomic
def delete_tool(*, row: HttpToolRow, actor: User, token: ApiToken | None = None) -> None:
    secrets.remove_tool(row.name)
    _changed("tool.deleted", row, actor, token)
    row.delete()


def restore_version(*, row: HttpToolRow, number: int, actor: User) -> Saved:
    """Make an older definition the newest one. It is judged anew: what was allowed then may not be now."""
    version = HttpToolVersion.objects.get(tool=row, number=number)
    return save_tool(json.loads(version.definition), actor=actor, pk=row.pk)


@transaction.atomic
def import_tools(body: bytes | str, *, actor: User, token: ApiToken | None = None) -> list[Saved]:
    """Take in an array of definitions: all of them or none. One whose name is known gives that tool a new version.

    Raises DefinitionsError with every fault.
    """
    definitions = read_definitions(body, outbound.policy())
    known = dict(HttpToolRow.objects.values_list("name", "pk"))
    if len(known.keys() | {one.name for one in definitions}) > MAX_TOOLS:
        raise ToolError(_("A tenant keeps %(limit)s tools at most.") % {"limit": number_format(MAX_TOOLS)})
    items = json.loads(body.decode() if isinstance(body, bytes) else body)
    return [save_tool(item, actor=actor, token=token, pk=known.get(item["name"])) for item in items]


def export_tools() -> list[dict[str, Any]]:
    """All definitions, to be imported elsewhere. Secrets are named in them, never contained."""
    return [json.loads(row.definition) for row in HttpToolRow.objects.order_by("name")]


@transaction.atomic
def set_tool_secret(*, name: str, value: str, actor: User, token: ApiToken | None = None) -> Secret:
    """Set a secret for the tools that refer to it now, each at its present host. Raises as `secrets.set_secret`."""
    return secrets.set_secret(name=name, value=value, actor=actor, token=token, places=places_for(name))


def places_for(name: str) -> list[Place]:
    """Where a secret would go: every tool in use that refers to it."""
    return [place_of(one) for one in definitions_in_use() if name in secret_names(one)]


def definitions_in_use() -> list[HttpDefinition]:
    """The kept definitions, enabled or not, and the active ones that none of them stands before."""
    kept = [definition_of(row) for row in HttpToolRow.objects.order_by("name")]
    names = {one.name for one in kept}
    return [*kept, *(one for one in active().definitions if one.name not in names)]


@transaction.atomic
def set_switch(
    *,
    name: str,
    is_enabled: bool,
    mode: str = "",
    safety: str = "",
    actor: User,
    token: ApiToken | None = None,
) -> None:
    """Switch a tool that has no row of its own, and say how its calls are run."""
    switch = ToolSwitch.objects.filter(name=name).first() or ToolSwitch(name=name)
    switch.is_enabled, switch.mode, switch.safety = is_enabled, mode, safety
    switch.full_clean()
    switch.save()
    raise_version()
    detail = {"name": name, "enabled": is_enabled, "mode": mode, "safety": safety}
    audit.record("tool.switched", object_type="tool", object_id=name, actor=actor, token=token, detail=detail)


def written(item: Mapping[str, Any]) -> str:
    return json.dumps(item, ensure_ascii=False)


def fault_texts(error: DefinitionsError | ToolError) -> Iterable[str]:
    """Every fault as a line for people; the place in the array is left out where there is one definition only."""
    faults = getattr(error, "faults", None)
    return (
        [str(error)] if faults is None else [str(fault).removeprefix("[0].").removeprefix("[0]: ") for fault in faults]
    )


def _check_name(name: str, pk: int | None) -> None:
    if name in RESERVED:
        raise ToolError(_("name: %(name)s is a tool of ours; choose another name.") % {"name": name})
    taken = HttpToolRow.objects.filter(name=name).values_list("pk", flat=True).first()
    if taken is not None and taken != pk:
        raise ToolError(_("name: %(name)s is taken by another tool.") % {"name": name})
    if pk is None and HttpToolRow.objects.count() >= MAX_TOOLS:
        raise ToolError(_("A tenant keeps %(limit)s tools at most.") % {"limit": number_format(MAX_TOOLS)})


def _changed(action: str, row: HttpToolRow, actor: User, token: ApiToken | None) -> None:
    raise_version()
    audit.record(
        action,
        object_type="tool",
        object_id=row.pk,
        actor=actor,
        token=token,
        after={"definition": row.definition, "enabled": row.is_enabled},
        detail={"name": row.name, "version": row.version},
    )
