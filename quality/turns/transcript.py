"""A turn of ours as people watch it: replies and calls from the rows, and what the model is saying right now.

A turn that runs has no messages yet, so all of it is told from its records. Needs an open tenant scope.
"""

import datetime as dt
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from django.db.models import F, QuerySet
from django.utils.translation import gettext as _

from engine.records import OPEN
from quality.models import ENDED, CallDecision, Channel, DecisionKind, ModelReply, Review, ToolCall, Turn, TurnEvent
from quality.models import TurnRun as Run
from quality.review.arguments import ArgumentTable, argument_table
from quality.review.conversation import Said, read_conversation
from quality.review.evidence import CallEvidence, calls_with_evidence, turn_without_payload
from quality.review.jsonview import string_start
from quality.starts import Octets, Start
from quality.turns.decide import kinds_for
from quality.turns.waiting import waiting
from tenants.models import ApiToken

MAX_REPLY_CHARS = 256 * 1024
MAX_TEXT_CHARS = 20_000
MAX_CALLS = 200
MAX_LIVE_EVENTS = 1_000


@dataclass(frozen=True, kw_only=True)
class Decided:
    """One decision with the name of who made it."""

    kind: DecisionKind
    by: str
    at: dt.datetime
    text: str = ""
    is_edited: bool = False

    @property
    def word(self) -> str:
        """As it is said: `Approved with edited arguments`."""
        word = str(self.kind.label)
        return _("%(decision)s with edited arguments") % {"decision": word} if self.is_edited else word


@dataclass(frozen=True, kw_only=True)
class TurnCall:
    """A call as it stands, with what a person needs to decide on it. `kinds` are the decisions that it takes now; none
    where there is nothing to decide. `edited` are the arguments that ran in place of the model's."""

    evidence: CallEvidence
    decisions: tuple[Decided, ...] = ()
    kinds: frozenset[DecisionKind] = frozenset()
    edited: ArgumentTable | None = None
    label: str | None = None

    @property
    def call(self) -> ToolCall:
        return self.evidence.call

    @property
    def is_open(self) -> bool:
        return bool(self.kinds)

    @property
    def revision(self) -> str:
        """Another one for each look that it has."""
        return f"{self.call.state}.{self.call.opening}.{len(self.decisions)}.{self.label or ''}"


@dataclass(frozen=True, kw_only=True)
class Reply:
    """One reply of the model, with the calls that it asked for. `error` is why there is none."""

    cycle: int
    text: str = ""
    hidden: int = 0  # characters of the text that are not shown
    reasoning: str = ""
    warnings: tuple[str, ...] = ()
    error: str = ""
    calls: tuple[TurnCall, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LiveCall:
    """A call that the model is writing."""

    cycle: int
    index: int
    name: str
    arguments: str


@dataclass(frozen=True, kw_only=True)
class Transcript:
    """A turn as of the event `seq`. `live_text` and `live_calls` are those of the reply that is not finished."""

    turn: Turn
    run: Run
    asked: tuple[Said, ...]
    replies: tuple[Reply, ...]
    live_text: str = ""
    live_calls: tuple[LiveCall, ...] = ()
    sent_by: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    tokens_estimated: bool = False
    decisions: tuple[tuple[ToolCall, Decided], ...] = field(default=())

    @property
    def seq(self) -> int:
        return self.run.last_seq

    @property
    def num_cycles(self) -> int:
        """Replies that are on record: events of their writing have nothing more to say."""
        return max((reply.cycle + 1 for reply in self.replies if not reply.error), default=0)

    @property
    def is_over(self) -> bool:
        return self.run.state in ENDED

    @property
    def num_open(self) -> int:
        return sum(call.is_open for reply in self.replies for call in reply.calls)


def transcript_of(turn_id: int) -> Transcript:
    """Raises TurnRun.DoesNotExist for a turn that is not ours to run."""
    # First the number of the newest event, then the rows: they may be ahead of it, never behind.
    run: Run = Run.objects.select_related("created_by").get(turn=turn_id)
    turn = turn_without_payload(turn_id)
    calls = turn_calls(ToolCall.objects.filter(turn=turn_id).order_by("cycle", "index")[:MAX_CALLS], run)
    rows = _replies(turn_id)
    replies = tuple(_reply(row, calls) for row in rows)
    recorded = [row for row in rows if not row.error_code]
    live_text, live_calls = ("", ()) if run.state in ENDED else _live(run, len(recorded))
    return Transcript(
        turn=turn,
        run=run,
        asked=_asked(turn),
        replies=replies,
        live_text=live_text,
        live_calls=live_calls,
        sent_by=senders([run])[turn_id],
        prompt_tokens=sum(row.prompt_tokens for row in recorded),
        completion_tokens=sum(row.completion_tokens for row in recorded),
        tokens_estimated=any(row.tokens_estimated for row in recorded),
        decisions=tuple((one.call, decided) for one in calls for decided in one.decisions),
    )


def senders(runs: Iterable[Run]) -> dict[int, str]:
    """Who sent each turn, and through which door, by turn. `created_by` of the runs should be loaded."""
    runs = list(runs)
    tokens = _token_names(run.token_id for run in runs)
    told = {}
    for run in runs:
        names = [str(run.created_by)] if run.created_by else []
        names += [_token_words(tokens.get(run.token_id))] if run.token_id else []
        told[run.turn_id] = ": ".join(filter(None, (str(Channel(run.channel).label), ", ".join(names))))
    return told


def _token_words(name: str | None) -> str:
    return _("token that is gone") if name is None else _("token %(name)s") % {"name": name}


def _token_names(ids: Iterable[int | None]) -> dict[int, str]:
    wanted = {pk for pk in ids if pk}
    return {token.pk: token.name for token in ApiToken.objects.filter(pk__in=wanted)} if wanted else {}


def turn_calls(rows: QuerySet[ToolCall], run: Run | None = None) -> list[TurnCall]:
    """These calls, each with its decisions and its label. Without a `run` all of them are taken to wait."""
    found = calls_with_evidence(rows)
    made = decisions_on([one.call.pk for one in found])
    labels = dict(Review.objects.filter(call_id__in=[one.call.pk for one in found]).values_list("call_id", "label"))
    is_live = run is None or run.state not in ENDED
    calls = []
    for one in found:
        call = one.call
        own = made.get(call.pk, {})
        is_open = is_live and call.state in OPEN and call.opening not in own
        edited = getattr(call, "args_run_start", None)
        calls.append(
            TurnCall(
                evidence=one,
                decisions=tuple(own.values()),
                kinds=kinds_for(call) if is_open else frozenset(),
                edited=argument_table(edited, one.tool.parameters if one.tool else None) if edited else None,
                label=labels.get(call.pk),
            )
        )
    return calls


def turn_call(turn_id: int, call_id: int) -> TurnCall:
    """One call of a turn of ours; raises TurnRun.DoesNotExist, ToolCall.DoesNotExist."""
    run = Run.objects.get(turn=turn_id)
    found = turn_calls(ToolCall.objects.filter(turn=turn_id, pk=call_id), run)
    if not found:
        raise ToolCall.DoesNotExist
    return found[0]


def waiting_calls(limit: int) -> list[TurnCall]:
    """Calls that wait for a person, over all turns, the oldest first."""
    return turn_calls(waiting()[:limit])


def decisions_on(call_ids: Iterable[int]) -> dict[int, dict[int, Decided]]:
    """What was decided on these calls, by call and opening."""
    rows = list(CallDecision.objects.select_related("decided_by").filter(call__in=list(call_ids)).order_by("pk"))
    tokens = _token_names(row.token_id for row in rows)
    made: dict[int, dict[int, Decided]] = {}
    for row in rows:
        by = str(row.decided_by) if row.decided_by else ""
        if row.token_id:
            by = f"{by} by token {tokens.get(row.token_id, 'that is gone')}".strip()
        made.setdefault(row.call_id, {})[row.opening] = Decided(
            kind=DecisionKind(row.kind),
            by=by or "the user, who wrote on",
            at=row.created_at,
            text=json.loads(row.text) if row.text else "",
            is_edited=row.arguments is not None,
        )
    return made


def _asked(turn: Turn) -> tuple[Said, ...]:
    """The messages that began the turn."""
    messages = read_conversation(turn.messages_start).messages  # type: ignore[attr-defined]
    said = next((at for at, one in enumerate(messages) if one.role == "assistant"), len(messages))
    return tuple(messages[:said])


def _replies(turn_id: int) -> list[Any]:
    columns = ("cycle", "warnings", "error_code", "error", "prompt_tokens", "completion_tokens", "tokens_estimated")
    rows = ModelReply.objects.filter(turn=turn_id).order_by("cycle", "pk").only(*columns)
    start = Start(ModelReply, "reply", MAX_REPLY_CHARS)
    return list(rows.annotate(reply_start=start, reply_bytes=Octets(F("reply"))))


def _reply(row: Any, calls: list[TurnCall]) -> Reply:
    if row.error_code:
        return Reply(cycle=row.cycle, error=row.error)
    text, reasoning, warnings = said_in(row.reply_start or "{}")
    return Reply(
        cycle=row.cycle,
        text=text[:MAX_TEXT_CHARS],
        hidden=max(0, len(text) - MAX_TEXT_CHARS),
        reasoning=reasoning[:MAX_TEXT_CHARS],
        warnings=tuple(dict.fromkeys((*row.warnings, *warnings))),
        calls=tuple(one for one in calls if one.call.cycle == row.cycle),
    )


def said_in(reply: str) -> tuple[str, str, list[str]]:
    """Text, reasoning and warnings of a reply as it is recorded; of one that was cut off, the beginning of its text."""
    try:
        told = json.loads(reply)
    except ValueError:
        return string_start(reply.removeprefix('{"text":')), "", []
    return told.get("text") or "", told.get("reasoning") or "", told.get("warnings") or []


def _live(run: Run, num_replies: int) -> tuple[str, tuple[LiveCall, ...]]:
    """What the model said so far of the reply that is not on record yet: the newest events, as far as they go on."""
    newest = TurnEvent.objects.filter(turn=run.turn_id, seq__lte=run.last_seq).order_by("-seq")
    pieces: list[dict[str, Any]] = []
    for data in newest.values_list("data", flat=True)[:MAX_LIVE_EVENTS]:
        event = json.loads(data)
        is_piece = event["type"] == "assistant_delta" or event.get("state") == "streaming"
        if not is_piece or event["cycle"] < num_replies:
            break
        pieces.append(event)
    text, calls = "", dict[tuple[int, int], LiveCall]()
    for event in reversed(pieces):
        if event["type"] == "assistant_delta":
            text += event["text"]
            continue
        key = (event["cycle"], event["index"])
        begun = calls.get(key)
        if begun is None or event["name"]:
            begun = LiveCall(cycle=key[0], index=key[1], name=event["name"] or "", arguments="")
        calls[key] = LiveCall(
            cycle=key[0], index=key[1], name=begun.name, arguments=begun.arguments + event["argumentsDelta"]
        )
    return text[:MAX_TEXT_CHARS], tuple(calls.values())
