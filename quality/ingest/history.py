"""A chat history in OpenAI form, read as turns with their calls.

A turn begins with a user message (some users send several in a row: one turn) and holds the model's replies, counted as
cycles, and the tools' answers. Answers find their call inside the turn only, by id: the newest reply first, since local
servers count ids anew in each reply and some histories use one id twice. A call without id is found by name and order.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from quality.ingest import evidence
from quality.ingest.jsontext import Node, dump
from quality.ingest.records import MAX_PLACE, CallRecord, RecordError, TurnRecord, fingerprint, unnamed_conversation


@dataclass(frozen=True, slots=True)
class Reply:
    """What is known of one reply beside the message itself; `tools` is JSON text of those offered."""

    message: str | None = None
    started_at: str | None = None
    model: str | None = None
    tools: str | None = None


@dataclass(slots=True)
class History:
    """Messages in order. `replies` tells more of some, by position; `default` of all others. `identity` stands for the
    conversation where the source names none; `path` is where the messages were found."""

    source: str
    identity: object
    messages: list[Node]
    path: str = "messages"
    conversation: str | None = None
    contact: str | None = None
    prompt_version: str | None = None
    provider: str | None = None
    default: Reply = Reply()
    replies: dict[int, Reply] = field(default_factory=dict)

    def reply(self, position: int) -> Reply:
        return self.replies.get(position, self.default)

    def message_id(self, position: int) -> str:
        known = self.replies.get(position)
        return known.message if known and known.message else f"#{position}"


@dataclass(slots=True)
class _Call:
    position: int
    cycle: int
    index: int
    tool_call_id: str | None
    tool_name: str
    args: str | None
    warnings: tuple[str, ...]
    answer: Node | None = None


@dataclass(slots=True)
class _Turn:
    position: int
    nodes: list[Node] = field(default_factory=list)
    replies: list[int] = field(default_factory=list)
    calls: list[_Call] = field(default_factory=list)
    warnings: set[str] = field(default_factory=set)


def turns(history: History) -> list[TurnRecord]:
    """The turns in which the agent did something; raises RecordError. Files are not trusted to be well-formed chats."""
    found: list[_Turn] = []
    system: list[Node] = []
    for position, node in enumerate(history.messages):
        role = _role(node, f"{history.path}[{position}]")
        if not found and role in ("system", "developer"):
            system.append(node)
            continue
        if not found or (role == "user" and found[-1].replies):
            found.append(_Turn(position))
        turn = found[-1]
        turn.nodes.append(node)
        if role == "assistant":
            if len(turn.replies) > MAX_PLACE:
                raise RecordError("out_of_range", f"{history.path}[{position}]", f"More than {MAX_PLACE:,} replies.")
            turn.replies.append(position)
            turn.calls.extend(_calls(node, position, len(turn.replies) - 1, f"{history.path}[{position}]"))
        elif role in ("tool", "function"):
            _answer(turn, node, by_name=role == "function")
    if not any(turn.replies for turn in found):
        missing = "message of the assistant" if history.messages else "message"
        raise RecordError("empty", history.path, f"There is no {missing}, so nothing to store.")
    prompt = _system(system)
    if len(found) > 1 and history.conversation is None:
        # A name of ours, so that each turn is read with those before it.
        history = replace(history, conversation=unnamed_conversation(history.identity))
    return [_record(history, turn, ordinal, prompt) for ordinal, turn in enumerate(found) if turn.replies]


def _role(node: Node, path: str) -> str:
    if not isinstance(node.value, dict) or not isinstance(node.value.get("role"), str):
        raise RecordError("wrong_type", path, "Expected a message: an object with a `role`.")
    return node.value["role"]


def _system(nodes: list[Node]) -> str | None:
    contents = [content for node in nodes if (content := node.get("content"))]
    if len(contents) == 1 and isinstance(contents[0].value, str):
        return contents[0].text
    texts = [c.value if isinstance(c.value, str) else evidence.joined_text(c.value) or "" for c in contents]
    return dump("\n\n".join(texts)) if texts else None


def _calls(reply: Node, position: int, cycle: int, path: str) -> Iterable[_Call]:
    asked = reply.get("tool_calls")
    if asked is None:
        legacy = reply.get("function_call")
        if legacy is not None:
            yield _call(legacy, None, (position, cycle, 0), f"{path}.function_call")
        return
    if not isinstance(asked.value, list):
        raise RecordError("wrong_type", f"{path}.tool_calls", "Expected an array of calls.")
    if len(asked.value) > MAX_PLACE:
        raise RecordError("out_of_range", f"{path}.tool_calls", f"More than {MAX_PLACE:,} calls.")
    for index, node in enumerate(asked.elements):
        where = f"{path}.tool_calls[{index}]"
        call_id = evidence.name(node.value.get("id"), f"{where}.id") if isinstance(node.value, dict) else None
        custom = node.get("custom")
        if custom is not None:
            yield _call(custom, call_id, (position, cycle, index), f"{where}.custom", custom=True)
        else:
            function = node.get("function")
            if function is None:
                raise RecordError("missing_field", f"{where}.function", "Expected `function` or `custom` in the call.")
            yield _call(function, call_id, (position, cycle, index), f"{where}.function")


def _call(node: Node, call_id: str | None, place: tuple[int, int, int], path: str, *, custom: bool = False) -> _Call:
    tool_name = evidence.name(node.value.get("name"), f"{path}.name") if isinstance(node.value, dict) else None
    if tool_name is None:
        raise RecordError("missing_field", f"{path}.name", "A call needs the name of its tool.")
    args, warnings = _custom_args(node) if custom else _args(node)
    if call_id is None:
        warnings += ("no_call_id",)
    return _Call(*place, tool_call_id=call_id, tool_name=tool_name, args=args, warnings=warnings)


def _args(node: Node) -> tuple[str | None, tuple[str, ...]]:
    arguments = node.get("arguments")
    if arguments is None:
        return None, ("args_missing",)
    if isinstance(arguments.value, str):
        return evidence.args_from_text(arguments.value)
    return evidence.args_from_value(arguments)  # some local servers send the object itself


def _custom_args(node: Node) -> tuple[str | None, tuple[str, ...]]:
    text = node.get("input")
    return (None, ("args_missing",)) if text is None else (f'{{"input":{text.text}}}', ())


def _answer(turn: _Turn, node: Node, *, by_name: bool) -> None:
    """Hand a tool's answer to the call it belongs to."""
    wanted = node.value.get("name" if by_name else "tool_call_id")
    waiting = [
        call
        for call in turn.calls
        if call.answer is None and wanted in (None, call.tool_name if by_name else call.tool_call_id)
    ]
    if not waiting:
        turn.warnings.add("unmatched_result")
        return
    newest = max(call.cycle for call in waiting)
    next(call for call in waiting if call.cycle == newest).answer = node


def _record(history: History, turn: _Turn, ordinal: int, system: str | None) -> TurnRecord:
    first, last = turn.replies[0], turn.replies[-1]
    # The first reply's id tells the turn from one that begins alike: the same words again, or an edited history.
    external_id = fingerprint("turn", history.source, history.identity, history.message_id(first))
    times = [at for position in turn.replies if (at := history.reply(position).started_at)]
    answered = not any(call.position == last for call in turn.calls)
    opens_with_user = turn.nodes[0].value["role"] == "user"
    return TurnRecord(
        external_id=external_id,
        source=history.source,
        calls=tuple(_call_record(history, call) for call in turn.calls),
        conversation=history.conversation,
        contact=history.contact,
        message=f"#{turn.position}" if opens_with_user else None,
        outbound_message=history.message_id(last) if answered else None,
        started_at=min(times, default=None),
        model=history.reply(last).model,
        provider=history.provider,
        prompt_version=history.prompt_version,
        messages=f"[{','.join(node.text for node in turn.nodes)}]",
        system=system,
        position=ordinal,
        num_cycles=len(turn.replies),
        tools=history.reply(last).tools,
        warnings=tuple(sorted(turn.warnings)),
    )


def _call_record(history: History, call: _Call) -> CallRecord:
    reply = history.reply(call.position)
    message = history.message_id(call.position)
    return CallRecord(
        external_id=fingerprint(history.source, history.identity, message, call.cycle, call.index),
        tool_name=call.tool_name,
        cycle=call.cycle,
        index=call.index,
        tool_call_id=call.tool_call_id,
        args=call.args,
        conversation=history.conversation,
        contact=history.contact,
        message=message,
        started_at=reply.started_at,
        model=reply.model,
        provider=history.provider,
        source=history.source,
        prompt_version=history.prompt_version,
        tools=reply.tools,
        **_outcome(call),
    )


def _outcome(call: _Call) -> dict[str, Any]:
    content = call.answer.get("content") if call.answer else None
    if content is None:
        return {"warnings": tuple(sorted((*call.warnings, "no_result")))}
    text = content.value if isinstance(content.value, str) else evidence.joined_text(content.value)
    if text is None:
        result, value = content.text, content.value
    else:
        result, value = evidence.result_from_text(text, content.text if isinstance(content.value, str) else None)
    is_error, error = evidence.fault_in_result(value)
    warnings = tuple(sorted((*call.warnings, *evidence.suspicions(value))))
    return {"result": result, "is_error": is_error, "error": error, "warnings": warnings}
