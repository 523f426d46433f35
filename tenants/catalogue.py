"""Every tool that a tenant has, whatever its kind: what lists show, and what turns are offered."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from django.utils.translation import gettext as _

from engine.tools import Mode, Safety, Tool
from engine.tools.booking import booking_tool
from engine.tools.database import database_tool
from engine.tools.definitions import HttpDefinition
from engine.tools.exchange import exchange_tools
from tenants import booking, databases, scripts
from tenants.active import active
from tenants.exchange import DeskStore
from tenants.models import ExchangeRate, HttpToolRow, SecretUse, TenantSettings, ToolSwitch
from tenants.tools import definition_of, place_of, secret_names

EXAMPLE_LINK = "https://example.com/"  # only its tool's name and description are looked at


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One tool. `kind` is http, active, booking, script, exchange or database; `note` says why it is not offered.

    `row_pk` and `version` are those of a kept definition. `missing` are secrets that it may not send.
    """

    name: str
    kind: str
    description: str
    is_enabled: bool
    mode: Mode = Mode.AUTO
    safety: Safety = Safety.UNSAFE
    note: str = ""
    row_pk: int | None = None
    version: int | None = None
    missing: list[str] = field(default_factory=list)
    definition: HttpDefinition | None = None


def catalogue() -> list[Entry]:
    """All tools of the open scope's tenant, the kept ones first; some six queries, however many there are."""
    switches = {one.name: one for one in ToolSwitch.objects.all()}
    own = TenantSettings.objects.first()
    uses = {(use.tool_name, use.origin, use.secret.name) for use in SecretUse.objects.select_related("secret")}
    kept = [_kept(row, uses) for row in HttpToolRow.objects.order_by("name")]
    names = {entry.name for entry in kept}
    others = [
        *_active(names, switches, uses),
        _booking(switches),
        *_exchange(switches),
        *_databases(own, switches),
        *_scripts(own, switches),
    ]
    return kept + [entry for entry in others if entry.name not in names]


def _kept(row: HttpToolRow, uses: set[tuple[str, str, str]]) -> Entry:
    definition = definition_of(row)
    return Entry(
        name=row.name,
        kind="http",
        description=definition.description,
        is_enabled=row.is_enabled,
        mode=definition.mode,
        safety=definition.safety,
        row_pk=row.pk,
        version=row.version,
        missing=_missing(definition, uses),
        definition=definition,
    )


def _active(names: set[str], switches: dict[str, ToolSwitch], uses: set[tuple[str, str, str]]) -> Iterator[Entry]:
    found = active()
    note = _("of the operator’s file")
    if found.source == "request":
        note = _("sent to /api/tools, until the service restarts")
    for definition in found.definitions:
        if definition.name not in names:
            entry = _own(definition, "active", note=note)
            yield replace(_switched(entry, switches), missing=_missing(definition, uses), definition=definition)


def _booking(switches: dict[str, ToolSwitch]) -> Entry:
    is_set = booking.secret() is not None
    entry = _own(booking_tool(EXAMPLE_LINK), "booking", note="" if is_set else _("no booking link is set"))
    return _on_if(is_set, _switched(entry, switches))


def _scripts(own: TenantSettings | None, switches: dict[str, ToolSwitch]) -> Iterator[Entry]:
    is_on = own is not None and own.scripts_enabled
    for tool in scripts.loaded()[0]:
        entry = _own(tool, "script", note="" if is_on else _("script tools are switched off"))
        yield _on_if(is_on, _switched(entry, switches))


def _exchange(switches: dict[str, ToolSwitch]) -> Iterator[Entry]:
    """The desk's tools: there while it has an active rate."""
    is_open = ExchangeRate.objects.filter(is_active=True).exists()
    for tool in exchange_tools(DeskStore(0), ""):
        entry = _own(tool, "exchange", note="" if is_open else _("the desk has no active rate"))
        yield _on_if(is_open, _switched(entry, switches))


def _databases(own: TenantSettings | None, switches: dict[str, ToolSwitch]) -> Iterator[Entry]:
    """One tool for all databases; its description tells of those that the tenant chose."""
    chosen = databases.databases(own.databases if own is not None else ())
    if offered := chosen or databases.databases(databases.configured()):
        entry = _own(database_tool(offered), "database", note="" if chosen else _("no database is switched on"))
        yield _on_if(bool(chosen), _switched(entry, switches))


def _own(tool: Tool | HttpDefinition, kind: str, *, note: str) -> Entry:
    """A tool as it is before a tenant has set anything."""
    return Entry(
        name=tool.name,
        kind=kind,
        description=tool.description,
        is_enabled=True,
        mode=tool.mode,
        safety=tool.safety,
        note=note,
    )


def _switched(entry: Entry, switches: dict[str, ToolSwitch]) -> Entry:
    switch = switches.get(entry.name)
    if switch is None:
        return entry
    return replace(
        entry,
        is_enabled=switch.is_enabled,
        mode=Mode(switch.mode or entry.mode),
        safety=Safety(switch.safety or entry.safety),
    )


def _on_if(is_possible: bool, entry: Entry) -> Entry:
    return entry if is_possible else replace(entry, is_enabled=False)


def _missing(definition: HttpDefinition, uses: set[tuple[str, str, str]]) -> list[str]:
    place = place_of(definition)
    return [name for name in secret_names(definition) if (place.tool_name, place.origin, name) not in uses]
