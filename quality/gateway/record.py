"""From an exchange to a turn with its calls. Needs an open tenant scope.

A request repeats the whole history, so what is new is what counts: the reply with its calls, and the tools' answers to
the calls of the reply before. Its turn is found by the fingerprint of the history up to it or, in a conversation that
the client names, by the ids of the calls. Replies in a history that did not come through here are context, not calls.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from django.db.models import Max
from django.utils import timezone

from engine.errors import ToolError
from engine.redaction import Redactor
from engine.schema import ArgumentSchema
from quality.gateway.exchange import CALLS_IN_TEXT, Exchange
from quality.gateway.fingerprint import SYSTEM, digests
from quality.gateway.reply import Message, read_reply
from quality.ingest import chat, evidence, tables
from quality.ingest.items import Parsed
from quality.ingest.jsontext import JsonError, Node, dump, parse
from quality.ingest.records import (
    MAX_PLACE,
    CallRecord,
    RecordError,
    TurnRecord,
    fingerprint,
    unnamed_conversation,
)
from quality.ingest.store import store
from quality.models import GatewayHistory, ToolCall, Turn
from quality.review.offered import OfferedTool, offered_tools
from tenants import masks
from tenants.scope import current_tenant_id

SOURCE = "gateway"
MAX_DEPTH = 500
MAX_LOOKED_UP = 200  # replies of a history, the newest

_TURN = ("turn_id", "turn__external_id", "turn__num_cycles", "turn__position", "turn__started_at")


class Unrecorded(Exception):
    """An exchange that cannot be recorded, and why."""


class NotYet(Exception):
    """The history holds replies that nobody knows. Another process may be recording them just now."""


@dataclass(frozen=True, slots=True)
class Home:
    """A turn that is stored, as far as an exchange that goes on from it needs it."""

    conversation: str
    at: int | None  # where its last known reply stands among the messages; None: not found there
    id: int
    external_id: str
    num_cycles: int
    position: int
    started_at: Any


@dataclass(slots=True)
class Chat:
    """The messages of a request, cut into turns: a turn begins with the user messages after a reply."""

    nodes: list[Node]
    num_system: int = 0
    starts: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        roles = self.roles
        self.num_system = next((at for at, role in enumerate(roles) if role not in SYSTEM), len(roles))
        has_reply = True
        for at in range(self.num_system, len(roles)):
            if not self.starts or (roles[at] == "user" and has_reply):
                self.starts.append(at)
                has_reply = False
            has_reply = has_reply or roles[at] == "assistant"

    @property
    def values(self) -> list[dict[str, Any]]:
        return [node.value for node in self.nodes]

    @property
    def roles(self) -> list[str]:
        return [node.value["role"] for node in self.nodes]

    @property
    def start(self) -> int:
        """Where the turn at hand begins."""
        return self.starts[-1] if self.starts else len(self.nodes)

    @property
    def num_replies(self) -> int:
        """Replies of the turn at hand so far."""
        return self.roles[self.start :].count("assistant")

    @property
    def system(self) -> str | None:
        contents = [content for node in self.nodes[: self.num_system] if (content := node.get("content"))]
        if len(contents) == 1 and isinstance(contents[0].value, str):
            return contents[0].text
        texts = [c.value if isinstance(c.value, str) else evidence.joined_text(c.value) or "" for c in contents]
        return dump("\n\n".join(texts)) if texts else None

    def turn_at(self, at: int) -> tuple[int, int]:
        """The bounds of the turn that holds a message."""
        start = max((start for start in self.starts if start <= at), default=0)
        return start, next((other for other in self.starts if other > start), len(self.nodes))

    def text(self, start: int, stop: int, *more: str) -> str:
        return f"[{','.join([*(node.text for node in self.nodes[start:stop]), *more])}]"


def record(exchange: Exchange, *, may_wait: bool) -> str:
    """Store what is new in an exchange; gives what could not be, in words. Raises Unrecorded, NotYet (if `may_wait`),
    and the database's own errors."""
    request, said = _request(exchange)
    chat_ = _chat(request)
    seed = exchange.said.contact or said.contact or ""
    prints = digests(chat_.values, seed)
    named = exchange.said.conversation or said.conversation or ""
    home = _home(chat_, prints, named)
    if home is None and may_wait and "assistant" in chat_.roles:
        raise NotYet
    message = None
    if exchange.status == 200 and not exchange.is_too_large:
        reply = Redactor({"MODEL_KEY": exchange.key or ""}).data(bytes(exchange.reply))
        message = read_reply(reply, is_stream=exchange.is_stream)
    items = _items(exchange, said, chat_, home=home, named=named, message=message)
    _store(items)
    if message is not None:
        _remember(chat_, digests([*chat_.values, message.value], seed)[-1], items[-1], home)
    return "The reply is too large to be kept." if exchange.is_too_large else ""


@dataclass(frozen=True, slots=True)
class _Told:
    """What the body of a request tells beside its messages."""

    conversation: str | None = None
    contact: str | None = None
    prompt_version: str | None = None
    tools: str | None = None


def _request(exchange: Exchange) -> tuple[Node, _Told]:
    try:
        root = parse(exchange.request, depth=MAX_DEPTH, limit=max(len(exchange.request), 1), repeated_keys=True)
        value = root.value
        if not isinstance(value, dict):
            raise Unrecorded("The request is no JSON object.")
        metadata = value.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        return root, _Told(
            evidence.name(metadata.get("conversation_id"), "metadata.conversation_id"),
            evidence.name(value.get("safety_identifier") or value.get("user"), "safety_identifier"),
            evidence.name(metadata.get("prompt_version"), "metadata.prompt_version"),
            _tools(root),
        )
    except JsonError as error:
        raise Unrecorded(f"The request is no strict JSON: {error.message}") from error
    except RecordError as error:
        raise Unrecorded(f"{error.path}: {error.message}") from error


def _tools(request: Node) -> str | None:
    """The tools offered, as sent; the older `functions` in the form of today."""
    functions = request.get("functions")
    if functions is None or request.get("tools") is not None:
        return evidence.toolset(request.get("tools"), "tools")
    evidence.toolset(functions, "functions")
    return "[" + ",".join(f'{{"type":"function","function":{each.text}}}' for each in functions.elements) + "]"


def _chat(request: Node) -> Chat:
    try:
        nodes = chat.messages_of(request)
        for at, node in enumerate(nodes):
            chat.role_of(node, f"messages[{at}]")
    except RecordError as error:
        raise Unrecorded(f"{error.path}: {error.message}") from error
    return Chat(nodes)


# --- whose turn it is -----------------------------------------------------------------------------------------------
def _home(chat_: Chat, prints: Sequence[bytes], named: str) -> Home | None:
    """The turn of the newest reply in the history that came through here."""
    places = {prints[at]: at for at, role in enumerate(chat_.roles) if role == "assistant"}
    newest = dict(list(places.items())[-MAX_LOOKED_UP:])
    if newest:
        rows = GatewayHistory.objects.filter(sha256__in=list(newest), turn__isnull=False)
        if named:
            rows = rows.filter(conversation_id=named)
        columns = ("sha256", "conversation_id", "cycle", *_TURN)
        found = list(rows.order_by("-seen_at", "-pk").values_list(*columns)[:MAX_LOOKED_UP])
        at = max((newest[bytes(row[0])] for row in found), default=None)
        if at is not None:
            best = _best([row for row in found if newest[bytes(row[0])] == at])
            return Home(best[1], at, *best[3:])
    return _home_by_ids(chat_, named) if named else None


def _best(alike: Sequence[Any]) -> Any:
    """Of histories that are the same, the newest that nobody went on from: so conversations that begin alike at the
    same time stay apart. Else the newest."""
    if len(alike) == 1:
        return alike[0]
    turns = Turn.objects.filter(conversation_id__in=[row[1] for row in alike])
    last = dict(turns.order_by().values_list("conversation_id").annotate(Max("position")))
    for row in alike:
        _, conversation, cycle, _, _, num_cycles, position, _ = row
        if num_cycles == cycle + 1 and last.get(conversation) == position:
            return row
    return alike[0]


def _home_by_ids(chat_: Chat, named: str) -> Home | None:
    """In a conversation with a name: the turn whose calls the messages answer. Clients shorten what is old."""
    ids = {node.value.get("tool_call_id") for node in chat_.nodes[chat_.start :] if node.value["role"] == "tool"}
    ids = {call_id for call_id in ids if isinstance(call_id, str)}
    if not ids:
        return None
    calls = ToolCall.objects.filter(conversation_id=named, source=SOURCE, tool_call_id__in=ids)
    row = calls.order_by("-started_at", "-pk").values_list(*_TURN).first()
    return Home(named, None, *row) if row else None


# --- what is new ----------------------------------------------------------------------------------------------------
def _items(
    exchange: Exchange, told: _Told, chat_: Chat, *, home: Home | None, named: str, message: Message | None
) -> list[TurnRecord]:
    """What is to be stored: the turn at hand last, if it has a reply; before it that whose calls were answered."""
    conversation = named or (home.conversation if home else unnamed_conversation(exchange.id))
    results = _results(chat_, home) if home else []
    count = chat_.num_replies
    goes_on = home is not None and (
        (home.at is None and count > 0) or (home.at is not None and home.at >= chat_.start and home.num_cycles <= count)
    )
    items = []
    if home and results and not (goes_on and message):
        start, stop = chat_.turn_at(home.at) if home.at is not None else (chat_.start, len(chat_.nodes))
        items.append(
            TurnRecord(home.external_id, SOURCE, tuple(results), conversation, messages=chat_.text(start, stop))
        )
    if message is None:
        return items
    cycle = max(count, home.num_cycles) if goes_on and home else count
    if cycle > MAX_PLACE:
        raise Unrecorded(f"The turn has more than {MAX_PLACE:,} replies.")
    begun = home.started_at if goes_on and home else exchange.started_at
    calls = tuple(_calls(exchange, told, message, conversation, cycle))
    shared = _shared(exchange, told, conversation)
    items.append(
        TurnRecord(
            external_id=home.external_id if goes_on and home else exchange.id,
            source=SOURCE,
            calls=(*(results if goes_on else ()), *calls),
            message=f"#{chat_.start}" if chat_.starts and chat_.roles[chat_.start] == "user" else None,
            outbound_message=None if calls else message.id or exchange.id,
            duration_ms=round((exchange.started_at - begun).total_seconds() * 1000) + exchange.duration_ms,
            style_id=exchange.said.style or None,
            messages=chat_.text(chat_.start, len(chat_.nodes), message.text),
            system=chat_.system,
            position=_position(chat_, home, goes_on=goes_on),
            num_cycles=cycle + 1,
            warnings=tuple(sorted({*exchange.warnings, *([exchange.fault] if exchange.fault else [])})),
            **shared,
        )
    )
    return items


def _shared(exchange: Exchange, told: _Told, conversation: str) -> dict[str, Any]:
    """What a turn and its new calls have in common."""
    return {
        "conversation": conversation,
        "contact": exchange.said.contact or told.contact,
        "started_at": evidence.utc(exchange.started_at),
        "model": exchange.model,
        "provider": exchange.label,
        "prompt_version": exchange.said.prompt_version or told.prompt_version,
        "tools": told.tools,
    }


def _position(chat_: Chat, home: Home | None, *, goes_on: bool) -> int:
    if home is None:
        return max(len(chat_.starts) - 1, 0)
    is_later = not goes_on and (home.at is None or home.at < chat_.start)
    return home.position + is_later


def _calls(exchange: Exchange, told: _Told, message: Message, conversation: str, cycle: int) -> Iterable[CallRecord]:
    offered = {tool.name: tool for tool in offered_tools(told.tools)} if told.tools else {}
    shared = _shared(exchange, told, conversation)
    for index, call in enumerate(message.calls[:MAX_PLACE]):
        custom, function = call.get("custom"), call.get("function")
        inner = function if isinstance(function, dict) else custom if isinstance(custom, dict) else {}
        name, call_id = inner.get("name"), call.get("id")
        if not isinstance(name, str) or not name:
            continue  # nothing tells what was to be called
        args, warnings = _args(inner)
        if exchange.checks_arguments:
            warnings += _doubts(name, args, offered)
        if CALLS_IN_TEXT in exchange.warnings:
            warnings += (CALLS_IN_TEXT,)
        yield CallRecord(
            external_id=fingerprint("call", SOURCE, exchange.id, index),
            tool_name=evidence.name(name[:500], "name") or "",
            cycle=cycle,
            index=index,
            tool_call_id=evidence.name(call_id[:500], "id") if isinstance(call_id, str) else None,
            args=args,
            message=evidence.name(message.id[:500], "id") or exchange.id,
            source=SOURCE,
            warnings=tuple(sorted({*warnings, "no_result"})),
            **shared,
        )


def _args(function: Mapping[str, Any]) -> tuple[str | None, tuple[str, ...]]:
    arguments = function.get("arguments", function.get("input"))
    if arguments is None:
        return None, ("args_missing",)
    if isinstance(arguments, str):
        return evidence.args_from_text(arguments) if "arguments" in function else (dump({"input": arguments}), ())
    return dump(arguments), () if isinstance(arguments, dict) else ("args_not_object",)


def _doubts(name: str, args: str | None, offered: Mapping[str, OfferedTool]) -> tuple[str, ...]:
    """What the tools offered say against a call."""
    if not offered:
        return ()
    tool = offered.get(name)
    if tool is None:
        return ("unknown_tool",)
    if tool.parameters is None or args is None:
        return ()
    try:
        fault = ArgumentSchema(tool.parameters).fault(msgspec.json.decode(args))
    except (ToolError, msgspec.MsgspecError, RecursionError):
        return ()
    return ("args_against_schema",) if fault else ()


def _results(chat_: Chat, home: Home) -> list[CallRecord]:
    """The answers that the messages give to calls of a turn, to those that have none: by id, in order."""
    after = chat_.start if home.at is None else home.at + 1
    waiting: list[Any] = list(
        ToolCall.objects.filter(turn_id=home.id, result__isnull=True, is_error__isnull=True)
        .order_by("-cycle", "index")
        .values("external_id", "tool_name", "cycle", "index", "tool_call_id")
    )
    found = []
    for node in chat_.nodes[after:]:
        value = node.value
        by = {"tool": ("tool_call_id", "tool_call_id"), "function": ("tool_name", "name")}.get(value["role"])
        call: dict[str, Any] | None = next((each for each in waiting if by and each[by[0]] == value.get(by[1])), None)
        if call is None:
            continue
        waiting.remove(call)
        outcome = chat.outcome_of(node.get("content"))
        found.append(
            CallRecord(
                source=SOURCE,
                result=outcome.result,
                is_error=outcome.is_error,
                error=outcome.error,
                warnings=outcome.warnings,
                **call,
            )
        )
    return found


# --- kept -----------------------------------------------------------------------------------------------------------
def _store(items: Sequence[TurnRecord]) -> None:
    """Raises Unrecorded. A history that was edited cannot be told from the stored one: then the stored one stays."""
    for turn in items:
        report = store([Parsed(0, 0, 0, (turn,))], tenant=current_tenant_id())
        if report.rejected and report.rejected[0].path == "messages":
            turn = msgspec.structs.replace(turn, messages=None)  # noqa: PLW2901
            report = store([Parsed(0, 0, 0, (turn,))], tenant=current_tenant_id())
        if report.rejected:
            raise Unrecorded(report.rejected[0].message)


def _remember(chat_: Chat, sha256: bytes, turn: TurnRecord, home: Home | None) -> None:
    """By this the next request of the conversation is known."""
    key = (SOURCE, turn.external_id)
    turn_id = tables.find_turns({key})[key].id
    known_to = home.at if home and home.at is not None else -1
    if "assistant" in chat_.roles[known_to + 1 : chat_.start]:
        earlier = chat_.text(chat_.num_system, chat_.start)
        if masker := masks.at_write():
            earlier = masker.structure(earlier)
        Turn.objects.filter(pk=turn_id, history__isnull=True).update(history=earlier)
    row = GatewayHistory(
        sha256=sha256,
        conversation_id=turn.conversation or "",
        turn_id=turn_id,
        num_messages=len(chat_.nodes) + 1,
        cycle=turn.num_cycles - 1,
        seen_at=timezone.now(),
    )
    GatewayHistory.objects.bulk_create(
        [row],
        update_conflicts=True,
        unique_fields=["tenant", "sha256", "conversation_id"],
        update_fields=["turn", "num_messages", "cycle", "seen_at"],
    )
