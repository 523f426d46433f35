"""A conversation, read as turns with their calls.

Formats tell it as `Said`s, one a message in OpenAI chat form. A turn begins with a user message (some users send
several in a row: one turn) and holds the model's replies, counted as cycles, and the tools' answers. Answers find their
call inside the turn only, by id: the newest reply first, since local servers count ids anew in each reply and some
histories use one id twice. A call without id is found by name and order.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from quality.ingest import evidence
from quality.ingest.jsontext import Node, dump
from quality.ingest.records import MAX_PLACE, CallRecord, RecordError, TurnRecord, fingerprint, unnamed_conversation

SYSTEM_ROLES = ("system", "developer")


@dataclass(frozen=True, slots=True)
class Reply:
    """What is known of one reply beside the message itself; `tools` is JSON text of those offered."""

    message: str | None = None
    started_at: str | None = None
    model: str | None = None
    tools: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a call ended; `result` is JSON text."""

    result: str | None = None
    is_error: bool | None = None
    error: str | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Asked:
    """A call as the model asked for it; `outcome` is told where the source keeps it with the call."""

    tool_name: str
    tool_call_id: str | None
    args: str | None
    warnings: tuple[str, ...] = ()
    outcome: Outcome | None = None
    by_provider: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """What a tool answered. It belongs to the call of that id; without one to that of that name, or to the next."""

    outcome: Outcome
    tool_call_id: str | None = None
    tool_name: str | None = None


@dataclass(frozen=True, slots=True)
class Said:
    """One message: `text` is its JSON in OpenAI chat form, `path` where it was found, `place` its id, or its position
    as `#3`."""

    role: str
    text: str
    path: str
    place: str
    reply: Reply = Reply()
    calls: tuple[Asked, ...] = ()
    answer: Answer | None = None

    @property
    def message(self) -> str:
        return self.reply.message or self.place


@dataclass(slots=True)
class History:
    """Messages in order, without the system prompt that they begin with: its contents are `system`. `identity` stands
    for the conversation where the source names none; `path` is where the messages were found. `unique_ids`: the ids of
    calls come from one provider, so that an answer may come as late as it likes."""

    source: str
    identity: object
    messages: list[Said]
    path: str = "messages"
    conversation: str | None = None
    contact: str | None = None
    prompt_version: str | None = None
    provider: str | None = None
    system: tuple[Node, ...] = ()
    unique_ids: bool = False


@dataclass(slots=True)
class _Call:
    asked: Asked
    reply: Said
    cycle: int
    index: int
    outcome: Outcome | None


class _Turn:
    def __init__(self) -> None:
        self.messages: list[Said] = []
        self.replies: list[Said] = []
        self.calls: list[_Call] = []
        self.warnings: set[str] = set()

    def add(self, said: Said) -> None:
        """Raises RecordError."""
        self.messages.append(said)
        if said.role != "assistant":
            return
        if len(self.replies) > MAX_PLACE:
            raise RecordError("out_of_range", said.path, f"More than {MAX_PLACE:,} replies.")
        if len(said.calls) > MAX_PLACE:
            raise RecordError("out_of_range", said.path, f"More than {MAX_PLACE:,} calls.")
        self.replies.append(said)
        cycle = len(self.replies) - 1
        self.calls.extend(_Call(asked, said, cycle, index, asked.outcome) for index, asked in enumerate(said.calls))


def turns(history: History) -> list[TurnRecord]:
    """The turns in which the agent did something; raises RecordError. Files are not trusted to be well-formed chats."""
    found: list[_Turn] = []
    for said in history.messages:
        if not found or (said.role == "user" and found[-1].replies):
            found.append(_Turn())
        found[-1].add(said)
        if said.answer:
            _answer(found, said.answer, anywhere=history.unique_ids)
    if not any(turn.replies for turn in found):
        missing = "message of the assistant" if history.messages or history.system else "message"
        raise RecordError("empty", history.path, f"There is no {missing}, so nothing to store.")
    if len(found) > 1 and history.conversation is None:
        # A name of ours, so that each turn is read with those before it.
        history = replace(history, conversation=unnamed_conversation(history.identity))
    system = _system(history.system)
    return [_record(history, turn, ordinal, system) for ordinal, turn in enumerate(found) if turn.replies]


def _answer(turns: list[_Turn], answer: Answer, *, anywhere: bool) -> None:
    """Hand a tool's answer to the call it belongs to."""
    waiting = _waiting(turns[-1].calls, answer)
    if not waiting and anywhere and answer.tool_call_id is not None:
        waiting = [call for turn in turns[:-1] for call in _waiting(turn.calls, answer)]
    if not waiting:
        turns[-1].warnings.add("unmatched_result")
        return
    newest = waiting[-1].reply
    next(call for call in waiting if call.reply is newest).outcome = answer.outcome


def _waiting(calls: Iterable[_Call], answer: Answer) -> list[_Call]:
    wanted = answer.tool_call_id if answer.tool_name is None else answer.tool_name
    return [
        call
        for call in calls
        if call.outcome is None
        and wanted in (None, call.asked.tool_call_id if answer.tool_name is None else call.asked.tool_name)
    ]


def _system(contents: tuple[Node, ...]) -> str | None:
    if len(contents) == 1 and isinstance(contents[0].value, str):
        return contents[0].text
    texts = [c.value if isinstance(c.value, str) else evidence.joined_text(c.value) or "" for c in contents]
    return dump("\n\n".join(texts)) if texts else None


def _record(history: History, turn: _Turn, ordinal: int, system: str | None) -> TurnRecord:
    first, last = turn.replies[0], turn.replies[-1]
    # The first reply's id tells the turn from one that begins alike: the same words again, or an edited history.
    external_id = fingerprint("turn", history.source, history.identity, first.message)
    times = [said.reply.started_at for said in turn.replies if said.reply.started_at]
    answered = all(asked.by_provider for asked in last.calls)
    opening = turn.messages[0]
    return TurnRecord(
        external_id=external_id,
        source=history.source,
        calls=tuple(_call_record(history, call) for call in turn.calls),
        conversation=history.conversation,
        contact=history.contact,
        message=opening.place if opening.role == "user" else None,
        outbound_message=last.message if answered else None,
        started_at=min(times, default=None),
        model=last.reply.model,
        provider=history.provider,
        prompt_version=history.prompt_version,
        messages=f"[{','.join(said.text for said in turn.messages)}]",
        system=system,
        position=ordinal,
        num_cycles=len(turn.replies),
        tools=last.reply.tools,
        warnings=tuple(sorted(turn.warnings)),
    )


def _call_record(history: History, call: _Call) -> CallRecord:
    asked, said, outcome = call.asked, call.reply, call.outcome or Outcome()
    warnings = {*asked.warnings, *outcome.warnings}
    if asked.tool_call_id is None:
        warnings.add("no_call_id")
    if asked.args is None:
        warnings.add("args_missing")
    if asked.by_provider:
        warnings.add("provider_executed")
    if outcome.result is None and outcome.is_error is None:
        warnings.add("no_result")
    return CallRecord(
        external_id=fingerprint(history.source, history.identity, said.message, call.cycle, call.index),
        tool_name=asked.tool_name,
        cycle=call.cycle,
        index=call.index,
        tool_call_id=asked.tool_call_id,
        args=asked.args,
        result=outcome.result,
        is_error=outcome.is_error,
        error=outcome.error,
        conversation=history.conversation,
        contact=history.contact,
        message=said.message,
        started_at=said.reply.started_at,
        model=said.reply.model,
        provider=history.provider,
        source=history.source,
        prompt_version=history.prompt_version,
        tools=said.reply.tools,
        warnings=tuple(sorted(warnings)),
    )
