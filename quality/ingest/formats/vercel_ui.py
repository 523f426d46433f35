"""Messages of chat pages as parts: the AI SDK's, those of its version 4, and kits that imitate them.

An item is a chat, `{"id": …, "messages": [{"id", "role", "parts", "metadata"?}]}`. One message of the assistant holds
all steps of its turn: `step-start` divides them, `step` of the calls where nothing else does (version 4). A part is a
call with its outcome: `tool-<name>` or `dynamic-tool` (`input`, `output`, `errorText`), `tool-invocation` (version 4),
or `tool-call` (`args`, `result`, `error`), whose words for a state differ from kit to kit; the same calls again in
`toolInvocations` are not read twice.

No time, model or contact is standard: `metadata.createdAt` and `metadata.model` are by habit, `createdAt` of the
message too.
"""

import datetime as dt
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from quality.ingest import chat, evidence
from quality.ingest.formats.shapes import kinds, metadata_of
from quality.ingest.history import SYSTEM_ROLES, Asked, History, Outcome, Reply, Said, turns
from quality.ingest.items import Checked, Parsed, each
from quality.ingest.jsontext import Node
from quality.ingest.reader import ItemError
from quality.ingest.records import RecordError, TurnRecord, fingerprint

NAME = "vercel_ui"
LABEL = "UI message parts (AI SDK)"

type _End = Literal["returned", "result", "error", "denied", "cut", "none"]

_ENDS: dict[str, _End] = {
    # the AI SDK
    "input-streaming": "cut",
    "output-available": "returned",
    "output-error": "error",
    "output-denied": "denied",
    # its version 4, where an error is a result like others
    "partial-call": "cut",
    "result": "result",
    # kits like it
    "completed": "returned",
    "complete": "returned",
    "success": "returned",
    "succeeded": "returned",
    "done": "returned",
    "failed": "error",
    "error": "error",
}  # all other words, such as `input-available`, `pending` or `cancelled`: nothing was recorded of an end
_CALL_TYPES = ("tool-call", "tool_call", "tool-invocation", "dynamic-tool")
_RESULT_TYPES = ("tool-result", "tool_result")
_STATIC = "tool-"


def recognise(root: Node) -> bool:
    return NAME in kinds(root.value)


def read(items: Iterable[Checked | ItemError]) -> Iterator[Parsed | ItemError]:
    return each(items, _chat)


def _chat(root: Node) -> list[TurnRecord]:
    value = root.value
    if not isinstance(value, dict):
        raise RecordError("not_an_object", "", "Expected an object with `messages`.")
    system: list[Node] = []
    said: list[Said] = []
    for position, node in enumerate(chat.messages_of(root)):
        path = f"messages[{position}]"
        role = chat.role_of(node, path)
        place = evidence.name(node.value.get("id"), f"{path}.id") or f"#{position}"
        parts = _parts(node, path)
        if role == "assistant":
            for step in _steps(node, parts):
                said.extend(step.said(_reply(node, path), path, place))
        elif role in SYSTEM_ROLES and not said:
            system.extend(text for part in parts if (text := chat.text_part(part.node)))
        else:
            shown = [part.node for part in parts if part.kind != "step-start"]
            said.append(chat.plain(role, shown, path=path, place=place))
    conversation = evidence.name(value.get("id"), "id")
    return turns(
        History(
            source=NAME,
            identity=conversation or fingerprint(root.text),
            messages=said,
            conversation=conversation,
            system=tuple(system),
        )
    )


def _reply(message: Node, path: str) -> Reply:
    """Raises RecordError."""
    value = message.value
    metadata = metadata_of(value)
    model = metadata.get("model") or value.get("model")
    return Reply(
        started_at=_time(metadata.get("createdAt")) or _time(value.get("createdAt")),
        model=evidence.name(model, f"{path}.metadata.model") if isinstance(model, str) else None,
    )


def _time(value: Any) -> str | None:
    """Text with a zone or milliseconds since 1970, as JavaScript writes them; what is neither is no time."""
    if isinstance(value, str):
        try:
            moment = dt.datetime.fromisoformat(value)
            return evidence.utc(moment) if moment.tzinfo else None
        except (ValueError, OverflowError):
            return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return evidence.utc_from_seconds(value / 1000) if is_number and abs(value) < 10**15 else None


# --- parts ------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class _Part:
    node: Node
    path: str
    kind: str

    @property
    def is_call(self) -> bool:
        return self.kind in _CALL_TYPES or (self.kind.startswith(_STATIC) and not self.is_result)

    @property
    def is_result(self) -> bool:
        """A tool may be called `result`: its part names no tool beside the type."""
        return self.kind in _RESULT_TYPES and "toolName" in self.node.value

    @property
    def call(self) -> Node:
        """The object with the call's members."""
        return self.node.get("toolInvocation") or self.node


def _parts(message: Node, path: str) -> list[_Part]:
    """Those of a message; one without parts has a text and maybe calls. Raises RecordError."""
    parts, field_name = message.get("parts"), "parts"
    if parts is None:
        parts, field_name = message.get("content"), "content"
    invocations = message.get("toolInvocations")
    found: list[_Part] = []
    if invocations is not None and message.get("parts") is None:
        if not isinstance(invocations.value, list):
            raise RecordError("wrong_type", f"{path}.toolInvocations", "Expected an array of calls.")
        for position, node in enumerate(invocations.elements):
            where = f"{path}.toolInvocations[{position}]"
            if not isinstance(node.value, dict):
                raise RecordError("wrong_type", where, "Expected a call: an object.")
            found.append(_Part(node, where, "dynamic-tool"))
    for position, node in enumerate(chat.parts_of(parts)):
        where = f"{path}.{field_name}[{position}]"
        if isinstance(node.value, str):
            if node.value:
                found.append(_Part(node, where, "text"))
        elif not isinstance(node.value, dict) or not isinstance(node.value.get("type"), str):
            raise RecordError("wrong_type", where, "Expected a part: an object with a `type`.")
        else:
            found.append(_Part(node, where, node.value["type"]))
    return found


@dataclass(slots=True)
class _Step:
    """One reply of the model."""

    texts: list[Node] = field(default_factory=list)
    calls: list[Asked] = field(default_factory=list)
    results: list[_Part] = field(default_factory=list)

    def said(self, reply: Reply, path: str, place: str) -> Iterator[Said]:
        yield chat.asking(self.texts, self.calls, path=path, place=place, reply=reply)
        for call in self.calls:
            if call.outcome:
                shown = chat.shown(call.outcome)
                yield chat.answering(call.tool_call_id, shown, path=path, place=place)
        for part in self.results:
            call_id = evidence.name(part.node.value.get("toolCallId"), f"{part.path}.toolCallId")
            outcome = _outcome(part.node, "result") or Outcome()
            yield chat.answering(call_id, chat.shown(outcome), path=part.path, place=place, outcome=outcome)


def _steps(message: Node, parts: list[_Part]) -> list[_Step]:
    """The replies in one message of the assistant: at least one, which may be empty."""
    divided = any(part.kind == "step-start" for part in parts)
    found: list[_Step] = []
    number: Any = None
    for part in parts:
        if part.kind == "step-start":
            found.append(_Step())
            continue
        if not found:
            found.append(_Step())
        if part.is_call:
            told = part.call.value.get("step")
            if not divided and told is not None:
                if number is not None and told != number:
                    found.append(_Step())
                number = told
            found[-1].calls.append(_call(part))
        elif part.is_result:
            found[-1].results.append(part)
        elif (text := chat.text_part(part.node)) is not None:
            if message.get("parts") is None and found[-1].calls and all(call.outcome for call in found[-1].calls):
                found.append(_Step())  # version 4 keeps the text of all steps apart from their calls
            found[-1].texts.append(text)
    return found or [_Step()]


def _call(part: _Part) -> Asked:
    node, value = part.call, part.call.value
    path = part.path if node is part.node else f"{part.path}.toolInvocation"
    says_kind = part.kind in _CALL_TYPES and ("toolName" in value or node is not part.node)
    if part.kind.startswith(_STATIC) and part.kind != _STATIC and not says_kind:
        tool_name = evidence.name(part.kind.removeprefix(_STATIC), f"{path}.type") or ""
    else:
        tool_name = chat.tool_name_of(node, path, "toolName")
    call_id = evidence.name(value.get("toolCallId"), f"{path}.toolCallId")
    args, odd = chat.args_of(next((given for key in ("input", "args", "rawInput") if (given := node.get(key))), None))
    end = _end(value)
    warnings = set(odd)
    if end == "cut":
        warnings.add("incomplete")
    if value.get("preliminary") is True:
        warnings.add("preliminary_result")
    outcome = _outcome(node, end)
    hosted = value.get("providerExecuted") is True
    return Asked(tool_name, call_id, args, tuple(sorted(warnings)), outcome, by_provider=hosted)


def _end(value: dict[str, Any]) -> _End:
    """How the call ended, by its state; without one by what there is."""
    state = next((state for key in ("state", "status") if isinstance(state := value.get(key), str)), None)
    if state is not None:
        return _ENDS.get(state.lower(), "none")
    if value.get("error") or value.get("errorText"):
        return "error"
    return "result" if any(value.get(key) is not None for key in ("output", "result")) else "none"


def _outcome(node: Node, end: _End) -> Outcome | None:
    """None if nothing was recorded of it, so that a result may still come."""
    value = node.value
    if end == "denied":
        approval = value.get("approval")
        reason = approval.get("reason") if isinstance(approval, dict) else None
        return Outcome(None, True, evidence.fault_text(reason) if reason else None, ("denied",))
    result = next((found for key in ("output", "result") if (found := node.members.get(key))), None)
    if end == "error":
        fault = value.get("errorText") or value.get("error")
        kept = chat.outcome_of(result) if result and result.value is not None else Outcome()
        return Outcome(kept.result, True, evidence.fault_text(fault) if fault else kept.error)
    if end == "returned" and result is None:
        return Outcome(is_error=False, warnings=("no_result",))
    if end not in ("returned", "result") or result is None:
        return None
    told = value.get("isError", False if end == "returned" else None)
    return chat.outcome_of(result, flag=told if isinstance(told, bool) else None)
