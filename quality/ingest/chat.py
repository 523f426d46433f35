"""OpenAI chat messages: read as they were logged, and made of what other formats tell.

Turns keep their messages in this form whatever they came in, so that a page, a case and a replay read one form. What
the source spelled (texts, arguments, results) is spliced in as it was.
"""

import json
from collections.abc import Iterable, Mapping, Sequence

from quality.ingest import evidence
from quality.ingest.history import SYSTEM_ROLES, Answer, Asked, Outcome, Reply, Said
from quality.ingest.jsontext import Node, dump
from quality.ingest.records import RecordError


def read_messages(
    nodes: list[Node], path: str, *, default: Reply, replies: Mapping[int, Reply] | None = None
) -> tuple[tuple[Node, ...], list[Said]]:
    """The contents of the system prompt, and the messages after it; `replies` tells more of some, by position. Raises
    RecordError."""
    system: list[Node] = []
    said: list[Said] = []
    for position, node in enumerate(nodes):
        one = read_message(node, position, f"{path}[{position}]", reply=(replies or {}).get(position, default))
        if said or one.role not in SYSTEM_ROLES:
            said.append(one)
        elif (content := node.get("content")) is not None:
            system.append(content)
    return tuple(system), said


def read_message(node: Node, position: int, path: str, *, reply: Reply) -> Said:
    """Raises RecordError."""
    role = role_of(node, path)
    is_reply = role == "assistant"
    return Said(
        role=role,
        text=node.text,
        path=path,
        place=f"#{position}",
        reply=reply if is_reply else Reply(),
        calls=tuple(_calls(node, path)) if is_reply else (),
        answer=_answer(node, role, path),
    )


def messages_of(root: Node, prefix: str = "") -> list[Node]:
    messages = root.get("messages")
    if messages is None or not isinstance(messages.value, list):
        raise RecordError("missing_field", f"{prefix}messages", "Expected an array of messages.")
    return messages.elements


def role_of(node: Node, path: str) -> str:
    if not isinstance(node.value, dict) or not isinstance(node.value.get("role"), str):
        raise RecordError("wrong_type", path, "Expected a message: an object with a `role`.")
    return node.value["role"]


def _calls(reply: Node, path: str) -> Iterable[Asked]:
    asked = reply.get("tool_calls")
    if asked is None:
        legacy = reply.get("function_call")
        if legacy is not None:
            yield _call(legacy, None, f"{path}.function_call")
        return
    if not isinstance(asked.value, list):
        raise RecordError("wrong_type", f"{path}.tool_calls", "Expected an array of calls.")
    for index, node in enumerate(asked.elements):
        where = f"{path}.tool_calls[{index}]"
        call_id = evidence.name(node.value.get("id"), f"{where}.id") if isinstance(node.value, dict) else None
        custom, function = node.get("custom"), node.get("function")
        if custom is not None:
            tool_name = tool_name_of(custom, f"{where}.custom")
            yield Asked(tool_name, call_id, free_text_args(custom.get("input")))
        elif function is not None:
            yield _call(function, call_id, f"{where}.function")
        else:
            raise RecordError("missing_field", f"{where}.function", "Expected `function` or `custom` in the call.")


def _call(node: Node, call_id: str | None, path: str) -> Asked:
    args, warnings = args_of(node.get("arguments"))
    return Asked(tool_name_of(node, path), call_id, args, warnings)


def tool_name_of(node: Node, path: str, key: str = "name") -> str:
    found = evidence.name(node.value.get(key), f"{path}.{key}") if isinstance(node.value, dict) else None
    if found is None:
        raise RecordError("missing_field", f"{path}.{key}", "A call needs the name of its tool.")
    return found


def args_of(arguments: Node | None) -> tuple[str | None, tuple[str, ...]]:
    """Arguments as JSON text, and warnings. Where text is expected some local servers send the object itself, where an
    object is expected some loggers keep text."""
    if arguments is None:
        return None, ()
    if isinstance(arguments.value, str):
        return evidence.args_from_text(arguments.value)
    return evidence.args_from_value(evidence.on_one_line(arguments))


def free_text_args(text: Node | None) -> str | None:
    """Arguments of a tool that takes one text and no JSON."""
    return None if text is None else f'{{"input":{text.text}}}'


def _answer(node: Node, role: str, path: str) -> Answer | None:
    if role == "function":
        return Answer(outcome_of(node.get("content")), tool_name=evidence.name(node.value.get("name"), f"{path}.name"))
    if role == "tool":
        call_id = evidence.name(node.value.get("tool_call_id"), f"{path}.tool_call_id")
        return Answer(outcome_of(node.get("content")), tool_call_id=call_id)
    return None


def outcome_of(content: Node | None, *, flag: bool | None = None) -> Outcome:
    """The outcome in a result's content (None: nothing was recorded); `flag` is what the format says of errors."""
    if content is None:
        return Outcome()
    text = content.value if isinstance(content.value, str) else evidence.joined_text(content.value)
    if text is None:
        result, value = evidence.on_one_line(content).text, content.value
    else:
        result, value = evidence.result_from_text(text, content.text if isinstance(content.value, str) else None)
    is_error, error = evidence.fault_in_result(value) if flag is None else (flag, None)
    if flag:
        found, told = evidence.fault_in_result(value)
        error = told if found else evidence.fault_text(value) if value else None
    return Outcome(result, is_error, error, () if is_error else evidence.suspicions(value))


# --- made of what other formats tell ----------------------------------------------------------------------------------
def plain(role: str, parts: Sequence[Node], *, path: str, place: str) -> Said:
    """A message without calls, of its content's parts; one text alone is the content."""
    return Said(role, f'{{"role":{dump(role)},"content":{content(parts)}}}', path, place)


def parts_of(content: Node | None) -> Sequence[Node]:
    """Parts of a content that may be a text alone."""
    if content is None:
        return ()
    return content.elements if isinstance(content.value, list) else (content,)


def content(parts: Sequence[Node]) -> str:
    """JSON text of content: that of the only text, else of the parts."""
    texts = [part if isinstance(part.value, str) else text for part in parts if (text := text_part(part))]
    if len(parts) == 1 and texts:
        return texts[0].text
    return f"[{','.join(_part(part) for part in parts)}]" if parts else '""'


def text_part(part: Node) -> Node | None:
    """The text of a part that is one."""
    if isinstance(part.value, str):
        return part
    if isinstance(part.value, dict) and part.value.get("type") in evidence.TEXT_PARTS:
        text = part.get("text")
        return text if text is not None and isinstance(text.value, str) else None
    return None


def _part(part: Node) -> str:
    text = text_part(part)
    if text is not None:
        return f'{{"type":"text","text":{text.text}}}'
    members = [f"{dump(key)}:{node.text}" for key, node in part.members.items() if key != "cache_control"]
    return f"{{{','.join(members)}}}" if members else part.text


def asking(texts: Sequence[Node], calls: Sequence[Asked], *, path: str, place: str, reply: Reply) -> Said:
    """A reply of the model."""
    words = texts[0].text if len(texts) == 1 else dump("\n".join(node.value for node in texts)) if texts else "null"
    asked = f',"tool_calls":[{",".join(map(_asked, calls))}]' if calls else ""
    text = f'{{"role":"assistant","content":{words}{asked}}}'
    return Said("assistant", text, path, place, reply, tuple(calls))


def _asked(call: Asked) -> str:
    raw = "args_not_json" in call.warnings  # then it is a JSON string of what came
    arguments = '""' if call.args is None else call.args if raw else dump(call.args)
    function = f'{{"name":{dump(call.tool_name)},"arguments":{arguments}}}'
    return f'{{"id":{dump(call.tool_call_id)},"type":"function","function":{function}}}'


def answering(call_id: str | None, shown: str, *, path: str, place: str, outcome: Outcome | None = None) -> Said:
    """A tool's answer; `shown` is JSON text of its content. Without `outcome` the call tells that itself."""
    text = f'{{"role":"tool","tool_call_id":{dump(call_id)},"content":{shown}}}'
    return Said("tool", text, path, place, answer=Answer(outcome, call_id) if outcome else None)


def shown(outcome: Outcome) -> str:
    """JSON text of a tool message's content for an outcome that is told with its call."""
    if outcome.result is not None:
        return outcome.result if outcome.result.startswith('"') else dump(outcome.result)
    return dump(outcome.error or "")


def gist(said: Said, words: object) -> tuple[object, ...]:
    """What stays the same of a message when a client sends it again, spelled otherwise: of its content that are
    `words`; a result may have been shortened since."""
    if said.answer and said.answer.tool_call_id:
        return said.role, said.answer.tool_call_id
    calls = [(call.tool_call_id, call.tool_name, json.loads(call.args or "null")) for call in said.calls]
    return said.role, words or None, [json.dumps(call, sort_keys=True) for call in calls]
