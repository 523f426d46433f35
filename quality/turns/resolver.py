"""From what a tenant has set to what one turn gets: tools with their secrets, a model, limits.

What is set is kept for each process under (tenant, version of its settings, deployment); every write of a setting
raises the version, so a turn that begins after a write sees it, in every process.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any

from engine.limits import Limits
from engine.net import Guard
from engine.tools import Arguments, Mode, Safety, Tool, ToolContext, ToolOutcome
from engine.tools.booking import booking_tool
from engine.tools.database import database_tool
from engine.tools.exchange import exchange_tools
from engine.tools.http import HttpTool
from engine.tools.pending import in_mode
from quality.models import TurnRun
from quality.turns import setup
from quality.turns.setup import Asked, Setup, SetupRefused
from tenants import booking, catalogue, databases, deployment, endpoints, outbound, scripts, secrets, shared
from tenants.envelope import SecretInvalid
from tenants.exchange import DeskStore
from tenants.limits import ToolLimits, limits
from tenants.models import Tenant, TenantSettings
from tenants.scope import current_tenant_id, tenant_scope
from tenants.styles import ActiveStyle, active_styles
from tenants.tools import place_of, secret_names
from tenants.versions import current_version

MAX_PLANS = 500  # tenants whose settings a process keeps


@dataclass(frozen=True, slots=True)
class Conversation:
    """What of a conversation decides on its tools. `run` says in the audit log for which turn secrets were read."""

    id: str = ""
    contact_id: str = ""
    style_id: str = ""
    run: str = ""


@dataclass(frozen=True, slots=True)
class Toolbox:
    """The tools of one turn; none where there is nothing to offer. `known_secrets` are those that the tools send."""

    tools: tuple[Tool, ...] = ()
    style: ActiveStyle | None = None
    limits: ToolLimits = field(default_factory=lambda: limits(None))
    known_secrets: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Plan:
    """A tenant's settings, as far as they are the same for all of its turns."""

    entries: tuple[catalogue.Entry, ...]
    limits: ToolLimits
    databases: tuple[str, ...]
    styles: Mapping[str, ActiveStyle]
    default_style: str

    def style(self, style_id: str) -> ActiveStyle | None:
        """The style of a turn: the one it names, else the default one, else none. Raises SetupRefused."""
        style_id = style_id or self.default_style
        if style_id and style_id not in self.styles:
            raise SetupRefused("no_style", f"There is no style {style_id!r}. Add it under Styles, or name another one.")
        return self.styles.get(style_id)


@dataclass(frozen=True, slots=True)
class OwnSecrets:
    """An HTTP tool with the secrets that were set for it, and no others."""

    tool: HttpTool
    values: Mapping[str, str] = field(repr=False)

    @property
    def name(self) -> str:
        return self.tool.name

    @property
    def description(self) -> str:
        return self.tool.description

    @property
    def parameters(self) -> Mapping[str, Any]:
        return self.tool.parameters

    @property
    def mode(self) -> Mode:
        return self.tool.mode

    @property
    def safety(self) -> Safety:
        return self.tool.safety

    @property
    def placeholders(self) -> frozenset[str]:
        return self.tool.placeholders

    async def execute(self, arguments: Arguments, context: ToolContext) -> ToolOutcome:
        return await self.tool.execute(arguments, replace(context, secrets=self.values.get))


def resolve_tools(tenant: Tenant | int, conversation: Conversation) -> Toolbox:
    """The tools of one turn, called once for it, in a thread without an event loop. Raises SetupRefused."""
    with tenant_scope(tenant) as tenant_id:
        plan = _plan(tenant_id)
        style = plan.style(conversation.style_id)
        names = None if style is None else style.tools
        entries = [entry for entry in plan.entries if names is None or entry.name in names]
        known: dict[str, str] = {}
        try:
            tools = tuple(_tools(entries, conversation, outbound.guard(), known, plan.databases))
        except SecretInvalid as error:
            raise SetupRefused(error.code, str(error)) from error
        return Toolbox(tools, style, plan.limits, known)


def from_settings(asked: Asked) -> Setup:
    """The setup of one claim of a turn (`settings.TURN_SETUP`). Raises SetupRefused."""
    run = TurnRun.objects.select_related("turn").filter(turn_id=asked.turn_id).first()
    channel, contact_id = (run.channel, run.turn.contact_id) if run is not None else ("", "")
    chosen = endpoints.choose(label=asked.model_label, source=channel)
    if chosen is None:
        if asked.model_label:
            raise SetupRefused("no_model", f"There is no enabled model with the label {asked.model_label}.")
        return setup.from_environment(asked)
    audited = f"turn {asked.turn_id}"
    try:
        key = endpoints.read_key(chosen.endpoint_id, run=audited)
    except SecretInvalid as error:
        raise SetupRefused(error.code, f"The key of model {chosen.label}: {error}") from error
    box = resolve_tools(asked.tenant_id, Conversation(asked.conversation_id, contact_id, asked.style_id, audited))
    return Setup(
        endpoint=setup.Endpoint(chosen.base_url, chosen.name, key, parameters=chosen.parameters),
        guard=outbound.guard(),
        tools=box.tools,
        limits=Limits(
            max_cycles=box.limits.max_cycles,
            tool_timeout_s=box.limits.tool_timeout_s,
            result_max_chars=box.limits.result_max_chars,
            max_calls=box.limits.max_calls,
            max_tokens=box.limits.max_tokens,
            max_cost=box.limits.max_cost,
            wall_time_s=box.limits.wall_time_s,
            price=chosen.price,
        ),
        known_secrets=box.known_secrets,
        system=box.style.system or None if box.style else None,
        style_id=box.style.style_id if box.style else asked.style_id,
        prompt_version=f"{box.style.style_id}@{box.style.version}" if box.style else "",
    )


_plans: OrderedDict[tuple[int, int, str], Plan] = OrderedDict()
_lock = Lock()


def _plan(tenant_id: int) -> Plan:
    key = (tenant_id, current_version(), deployment.current())
    with _lock:
        if key in _plans:
            _plans.move_to_end(key)
            return _plans[key]
    entries = tuple(entry for entry in catalogue.catalogue() if entry.is_enabled)
    styles, default_style = active_styles()
    own = TenantSettings.objects.first()
    plan = Plan(
        entries=entries,
        limits=limits(own),
        databases=tuple(own.databases) if own is not None else (),
        styles={style.style_id: style for style in styles},
        default_style=default_style,
    )
    if shared.is_away():  # definitions that were sent in could not be read: the next turn looks again
        return plan
    with _lock:
        for stale in [each for each in _plans if each[0] == tenant_id]:
            del _plans[stale]
        _plans[key] = plan
        while len(_plans) > MAX_PLANS:
            _plans.popitem(last=False)
    return plan


def _tools(
    entries: Sequence[catalogue.Entry],
    conversation: Conversation,
    guard: Guard,
    known: dict[str, str],
    own_databases: Sequence[str],
) -> Iterator[Tool]:
    """Each entry as a tool. Secrets that are read are added to `known`."""
    ours: dict[str, Tool] = {tool.name: tool for tool in scripts.loaded()[0]}
    kinds = {entry.kind for entry in entries}
    if "exchange" in kinds and conversation.contact_id:  # the desk serves a customer that it knows
        ours |= {tool.name: tool for tool in exchange_tools(DeskStore(current_tenant_id()), conversation.contact_id)}
    if "database" in kinds:
        tool_of_databases = database_tool(databases.databases(own_databases))
        ours[tool_of_databases.name] = tool_of_databases
    for entry in entries:
        tool: Tool | None = None
        if entry.definition is not None:
            names = secret_names(entry.definition)
            values = secrets.read_for_tool(place_of(entry.definition), names, run=conversation.run) if names else {}
            known.update(values)
            tool = OwnSecrets(HttpTool(entry.definition, guard), values)
        elif entry.kind == "booking":
            link = booking.url(run=conversation.run)
            tool = booking_tool(link) if link else None
        else:
            tool = ours.get(entry.name)
        if tool is not None:
            is_own = (tool.mode, tool.safety) == (entry.mode, entry.safety)
            yield tool if is_own else in_mode(tool, entry.mode, entry.safety)
