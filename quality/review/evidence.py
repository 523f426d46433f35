"""All that a reviewer looks at for one item, in a fixed number of queries and with nothing of unbounded size.

Evidence is read up to a limit; how long it really is comes with it. Needs an open tenant scope.
"""

from dataclasses import dataclass, field
from typing import Any

from django.db.models import F, Model, Q, QuerySet
from django.db.models.functions import Left
from django.utils.translation import gettext as _

from quality.ingest.records import MAX_PLACE
from quality.models import Feedback, FeedbackEvent, Hint, PayloadField, ToolCall, Toolset, Turn
from quality.review import blind
from quality.review.arguments import ArgumentTable, argument_table
from quality.review.conversation import Conversation, read_conversation
from quality.review.hints import BY_NAME
from quality.review.items import Item
from quality.review.jsonview import Node, Table, decode, string_start, table, tree
from quality.review.labelling import current_labels, history
from quality.review.offered import OfferedTool, offered_tools
from quality.starts import Octets, Start
from tenants.models import User

MAX_BODY_CHARS = 64 * 1024
MAX_MESSAGES_CHARS = 512 * 1024
MAX_AROUND = 50
_CALL_BODIES = ("args", "result", "error")


@dataclass(frozen=True, kw_only=True)
class Body:
    """Arguments, result or error of a call. `text` is at most the first MAX_BODY_CHARS of it; `cut` says if that is not
    all. It takes `num_bytes` as it is kept."""

    name: str
    text: str
    num_bytes: int
    cut: bool


@dataclass(frozen=True, kw_only=True)
class Result:
    """A call's outcome by its kind: `tree` (JSON), `table` (an array of flat objects; it has its tree, too), `text`, or
    `none`. `body` is None where nothing was recorded. `is_json`: text that begins as JSON does, and was cut."""

    kind: str
    body: Body | None = None
    node: Node | None = None
    table: Table | None = None
    text: str = ""
    is_json: bool = False


@dataclass(frozen=True, kw_only=True)
class CallEvidence:
    """A call with its arguments beside the schema. `call` has no payload loaded: `args`, `result`, `error` do."""

    call: ToolCall
    table: ArgumentTable
    args: Body | None
    result: Result
    error: Body | None
    tool: OfferedTool | None


@dataclass(frozen=True, kw_only=True)
class Sibling:
    """Another call of the same turn, numbered from 1 in the order the model asked for them."""

    number: int
    id: int
    cycle: int
    index: int
    tool_name: str
    is_error: bool | None
    args_preview: str | None

    @property
    def key(self) -> tuple[int, int]:
        return (self.cycle, self.index)


@dataclass(frozen=True, kw_only=True)
class ItemEvidence:
    """`history` are earlier messages as the caller sent them along; `before` and `after` are the other turns of the
    conversation (without payload), oldest first."""

    item: Item
    turn: Turn
    system: str
    history: Conversation
    conversation: Conversation
    call: CallEvidence | None
    siblings: list[Sibling]
    tools: tuple[OfferedTool, ...]
    toolset: Toolset | None
    before: list[Turn] = field(default_factory=list)
    after: list[Turn] = field(default_factory=list)
    labels: list[Feedback] = field(default_factory=list)
    events: list[FeedbackEvent] = field(default_factory=list)
    hints: list[Hint] = field(default_factory=list)
    is_veiled: bool = False  # others' labels are left out: see quality.review.blind

    @property
    def number(self) -> int | None:
        """The call's number among those of its turn."""
        return next((one.number for one in self.siblings if one.id == self.item.call_id), None)

    @property
    def is_placed(self) -> bool:
        """Does the recorded conversation show where the call was made?"""
        return bool(self.call and (self.call.call.cycle, self.call.call.index) in self.conversation.places)


def evidence_of(item: Item) -> ItemEvidence:
    """Everything about one item."""
    # The call first: what is masked in its arguments is masked in the conversation, too.
    call = _call(item.call_id) if item.call_id else None
    turn = turn_without_payload(item.turn_id)
    toolset_id = call.toolset_id if call and call.toolset_id else turn.toolset_id
    toolset = Toolset.objects.filter(pk=toolset_id).first() if toolset_id else None
    tools = offered_tools(toolset.tools) if toolset else ()
    before, after = _around(turn)
    return ItemEvidence(
        item=item,
        turn=turn,
        system=string_start(turn.system_start or ""),  # type: ignore[attr-defined]
        history=read_conversation(turn.history_start),  # type: ignore[attr-defined]
        conversation=read_conversation(turn.messages_start),  # type: ignore[attr-defined]
        call=_call_evidence(call, tools) if call else None,
        siblings=siblings(item.turn_id),
        tools=tools,
        toolset=toolset,
        before=before,
        after=after,
        labels=current_labels(item),
        events=history(item),
        hints=_hints(item),
    )


def evidence_for(item: Item, user: User) -> ItemEvidence:
    """The same as this user may see it."""
    return blind.veiled(evidence_of(item), user)


def _hints(item: Item) -> list[Hint]:
    """Those of a call; of a reply without one, all of its turn, in the order of its calls."""
    of = {"call": item.call_id} if item.call_id else {"turn": item.turn_id}
    order = list(BY_NAME)
    found = (
        Hint.objects.filter(**of, rule__in=order)
        .select_related("call")
        .defer(*(f"call__{n}" for n in _payload(ToolCall)))
    )
    return sorted(
        found,
        key=lambda hint: (
            (hint.call.cycle, hint.call.index, order.index(hint.rule), hint.path)
            if hint.call
            else (MAX_PLACE + 1, 0, order.index(hint.rule), hint.path)
        ),
    )


def turn_without_payload(pk: int) -> Turn:
    """A turn with `messages_start`, `messages_bytes` and the like in place of its payload; raises Turn.DoesNotExist."""
    limits = {"messages": MAX_MESSAGES_CHARS, "history": MAX_MESSAGES_CHARS, "system": MAX_BODY_CHARS}
    return _starts(Turn.objects.all(), limits).get(pk=pk)


def _call(pk: int) -> ToolCall:
    return _starts(ToolCall.objects.all(), dict.fromkeys(_CALL_BODIES, MAX_BODY_CHARS)).get(pk=pk)


def calls_with_evidence(rows: QuerySet[ToolCall]) -> list[CallEvidence]:
    """These calls with their evidence, in two queries; `call.args_run_start` is what a person made of the arguments."""
    calls = list(_starts(rows, dict.fromkeys((*_CALL_BODIES, "args_run"), MAX_BODY_CHARS)))
    toolsets = Toolset.objects.filter(pk__in={call.toolset_id for call in calls if call.toolset_id})
    tools = {toolset.pk: offered_tools(toolset.tools) for toolset in toolsets}
    return [_call_evidence(call, tools.get(call.toolset_id, ())) for call in calls]


def _starts(rows: QuerySet[Any], limits: dict[str, int]) -> QuerySet[Any]:
    """The rows without payload; of each column in `limits` its first characters and its size."""
    starts: dict[str, Any] = {f"{name}_start": Start(rows.model, name, limit) for name, limit in limits.items()}
    sizes: dict[str, Any] = {f"{name}_bytes": Octets(F(name)) for name in limits}
    kept: dict[str, Any] = {f"{name}_kept": Octets(Left(name, limit)) for name, limit in limits.items()}
    return rows.defer(*_payload(rows.model), *limits).annotate(**starts, **sizes, **kept)


def _payload(model: type[Model]) -> list[str]:
    """The columns of a table that can be of any size."""
    return [field.name for field in model._meta.fields if isinstance(field, PayloadField)]


def _body(row: Any, name: str) -> Body | None:
    text, num_bytes = getattr(row, f"{name}_start"), getattr(row, f"{name}_bytes")
    if text is None:
        return None
    return Body(name=name, text=text, num_bytes=num_bytes, cut=getattr(row, f"{name}_kept") < num_bytes)


def _call_evidence(call: ToolCall, tools: tuple[OfferedTool, ...]) -> CallEvidence:
    args = _body(call, "args")
    tool = next((tool for tool in tools if tool.name == call.tool_name), None)
    if args and args.cut:
        table = ArgumentTable(
            other=Node("string", args.text[:2_000], len(args.text)),
            notes=[_("These arguments are too long to be laid out here. The raw text has all of them.")],
        )
    else:
        table = argument_table(args.text if args else None, tool.parameters if tool else None)
    return CallEvidence(
        call=call, table=table, args=args, result=_result(_body(call, "result")), error=_body(call, "error"), tool=tool
    )


def _result(body: Body | None) -> Result:
    if body is None:
        return Result(kind="none")
    try:
        value = decode(body.text)
    except ValueError:  # cut off, or older than the rule that results are JSON: its text says it best
        is_json = body.cut and body.text.lstrip()[:1] in ("{", "[")
        return Result(kind="text", body=body, text=string_start(body.text), is_json=is_json)
    if type(value) is str:
        return Result(kind="text", body=body, text=value)
    rows = table(value)
    return Result(kind="table" if rows else "tree", body=body, node=tree(value), table=rows)


def siblings(turn_id: int) -> list[Sibling]:
    """The calls of a turn, without payload."""
    rows = ToolCall.objects.filter(turn_id=turn_id).order_by("cycle", "index")[:200]
    columns = ("id", "cycle", "index", "tool_name", "is_error")
    found = rows.values(*columns, args_preview=Start(ToolCall, "args", 200))
    return [Sibling(number=number, **row) for number, row in enumerate(found, start=1)]


def _around(turn: Turn) -> tuple[list[Turn], list[Turn]]:
    """The nearest turns of the same conversation before and after this one, without their payload."""
    if not turn.conversation_id:
        return [], []
    others = Turn.objects.filter(conversation_id=turn.conversation_id).exclude(pk=turn.pk).defer(*_payload(Turn))
    same = Q(started_at=turn.started_at)
    earlier = Q(started_at__lt=turn.started_at) | same & (
        Q(position__lt=turn.position) | Q(position=turn.position, pk__lt=turn.pk)
    )
    later = Q(started_at__gt=turn.started_at) | same & (
        Q(position__gt=turn.position) | Q(position=turn.position, pk__gt=turn.pk)
    )
    before = others.filter(earlier).order_by("-started_at", "-position", "-pk")[:MAX_AROUND]
    after = others.filter(later).order_by("started_at", "position", "pk")[:MAX_AROUND]
    return list(before)[::-1], list(after)
