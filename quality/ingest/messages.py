"""Messages of models, in whatever form a tracer keeps them, as messages in OpenAI form with the calls they ask for.

Forms: OpenAI, Anthropic's content blocks, OpenTelemetry's `parts`, LangChain's (constructor, `data`, or flat). What is
none of these is left out: a trace is read for its calls, and a message in a strange form must not cost them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

from quality.ingest import evidence
from quality.ingest.jsontext import Node, dump
from quality.ingest.payloads import Args, decoded, inside, node_of, read_args, read_result
from quality.ingest.records import MAX_PLACE, MAX_TOOLS, RecordError

_ROLES = {
    "human": "user",
    "humanmessage": "user",
    "ai": "assistant",
    "aimessage": "assistant",
    "aimessagechunk": "assistant",
    "model": "assistant",
    "systemmessage": "system",
    "toolmessage": "tool",
    "functionmessage": "function",
}
_SYSTEM = ("system", "developer")
_FLAT_TYPES = frozenset({"human", "ai", "system", "tool", "function", "AIMessageChunk"})


@dataclass(frozen=True, slots=True)
class Call:
    """A call that a reply asks for, at its place in the reply."""

    index: int
    tool_name: str
    call_id: str | None
    args: Args


@dataclass(frozen=True, slots=True)
class Message:
    """One message; `text` is its JSON in OpenAI form. That of a tool answers the call `answers_to`."""

    role: str
    text: str
    calls: tuple[Call, ...] = ()
    answers_to: str | None = None
    content: Node | None = None


@dataclass(frozen=True, slots=True)
class Thread:
    """The turn that a request of a model continues: its messages so far and the reply, as JSON texts; those of the user
    that it began with; how many replies it has; the system prompt as JSON text; how many turns came before."""

    given: tuple[str, ...]
    reply: str | None
    opening: tuple[str, ...]
    num_replies: int
    system: str | None
    position: int


def exchange(given: list[Message], reply: list[Message], system: Node | None = None) -> dict[str, Any]:
    """What a model was given and answered, as fields of `spans.Model`: the calls, the answers to earlier ones, the
    thread. `system` is a prompt that was given apart from the messages."""
    answer = _one([message for message in reply if message.role == "assistant"])
    own, position = _last_turn(given)
    answers = [(m.answers_to, found) for m in own if m.answers_to and (found := read_result(m.content)) is not None]
    prompts = [node for node in (decoded(system), *(m.content for m in given if m.role in _SYSTEM)) if node is not None]
    thread = Thread(
        given=tuple(message.text for message in own),
        reply=answer.text if answer else None,
        opening=tuple(message.text for message in takewhile(lambda message: message.role == "user", own)),
        num_replies=sum(message.role == "assistant" for message in own) + bool(answer),
        system=_joined(prompts),
        position=min(position, MAX_PLACE),
    )
    return {"calls": answer.calls if answer else (), "answers": tuple(answers), "thread": thread}


def _one(replies: list[Message]) -> Message | None:
    """Pieces of one reply as one message, with the calls of all."""
    if len(replies) < 2:
        return replies[0] if replies else None
    calls = [call for message in replies for call in message.calls]
    texts = [message.content.value for message in replies if message.content is not None]
    content = node_of("".join(text for text in texts if isinstance(text, str))) if texts else None
    return _message("assistant", content, tuple(replace(call, index=index) for index, call in enumerate(calls)))


def answer_text(call_id: str, result: str) -> str:
    """JSON text of a tool's message in OpenAI form; `result` is JSON text."""
    return _text("tool", node_of(result) if result[:1] != '"' else inside(result), (), call_id)


def _last_turn(messages: list[Message]) -> tuple[list[Message], int]:
    """The messages of the last turn, and how many turns came before. A turn begins with what users say in a row."""
    told = [message for message in messages if message.role not in _SYSTEM]
    starts = [
        position
        for position, message in enumerate(told)
        if position == 0 or (message.role == "user" and told[position - 1].role != "user")
    ]
    return (told[starts[-1] :], len(starts) - 1) if starts else ([], 0)


def _joined(prompts: list[Node]) -> str | None:
    if len(prompts) == 1 and isinstance(prompts[0].value, str):
        return prompts[0].text
    texts = [p.value if isinstance(p.value, str) else _text_of(p) for p in prompts]
    return dump("\n\n".join(text for text in texts if text)) if any(texts) else None


def _text_of(parts: Node) -> str:
    """All text of content parts; OpenTelemetry calls it `content`, the others `text`."""
    members = [part.value for part in parts.elements if isinstance(part.value, dict)]
    texts = [part.get("text", part.get("content")) for part in members]
    return "".join(text for text in texts if isinstance(text, str))


def of_request(node: Node | None) -> list[Message]:
    """What a model was given: a request, a list of messages, a list of such lists, or a text."""
    node = decoded(node)
    if node is None:
        return []
    if isinstance(node.value, dict):
        for name in ("messages", "input", "contents"):
            if (held := node.get(name)) is not None:
                return of_request(held)
        return list(read(node, "user"))
    return list(_listed(node, "user"))


def of_reply(node: Node | None) -> list[Message]:
    """What a model answered: a response, a message, a list of messages, or a text."""
    node = decoded(node)
    if node is None:
        return []
    if not isinstance(node.value, dict):
        return list(_listed(node, "assistant"))
    choices = node.get("choices")
    if choices is not None:  # only the first was used
        firsts = [c for c in choices.elements if isinstance(c.value, dict) and c.value.get("index", 0) == 0]
        return [m for choice in firsts[:1] for m in read(choice.get("message") or choice, "assistant")]
    generations = node.get("generations")
    if generations is not None:
        first = generations.elements[0] if generations.elements else generations
        first = first.elements[0] if first.elements else first
        return list(read(first.get("message") or first, "assistant"))
    for name in ("messages", "message", "output"):
        held = node.get(name)
        if held is not None and not {"role", "content", "parts"} & node.value.keys():
            return of_reply(held)
    return list(read(node, "assistant"))


def _listed(node: Node, role: str) -> Iterator[Message]:
    if isinstance(node.value, str):
        yield from read(node, role)
    for element in node.elements:
        if isinstance(element.value, list):
            yield from _listed(element, role)
        else:
            yield from read(element, role)


def read(node: Node, role: str) -> Iterator[Message]:
    """One message of a source, which can be several in OpenAI form; `role` is for one that names none."""
    if isinstance(node.value, str):
        yield _message(role, node)
        return
    if not isinstance(node.value, dict):
        return
    node, told = _unwrapped(evidence.on_one_line(node))
    role = _ROLES.get(told.lower(), told) if told else role
    if node.get("parts") is not None:
        yield from _of_parts(node, role)
        return
    if node.value.get("type") == "function_call":  # an item of OpenAI's Responses
        yield _message(role, None, _asked([node]))
        return
    calls = _calls(node)
    content = node.get("content")
    if content is not None and any(_kind(block) in ("tool_use", "tool_result") for block in content.elements):
        yield from _of_blocks(content, role, calls)
        return
    if not told and content is None and not calls:
        return
    answers_to = _id(node, "tool_call_id") if role == "tool" else None
    is_openai = node.value.get("role") == role and "kwargs" not in node.value and not _has_flat_calls(node)
    yield Message(
        role=role,
        text=node.text if is_openai else _text(role, content, calls, answers_to),
        calls=calls,
        answers_to=answers_to,
        content=content,
    )


def _unwrapped(node: Node) -> tuple[Node, str]:
    """The message inside a wrapper, and the role it tells."""
    kwargs, data = node.get("kwargs"), node.get("data")
    kind, names = _kind(node), node.value.get("id")
    if kind == "constructor" and isinstance(names, list) and names and kwargs and isinstance(kwargs.value, dict):
        return kwargs, str(names[-1])
    if data is not None and isinstance(data.value, dict) and kind in _FLAT_TYPES:
        return data, kind
    role = node.value.get("role")
    if isinstance(role, str):
        return node, role
    return node, kind if kind in _FLAT_TYPES else ""


def _of_parts(node: Node, role: str) -> Iterator[Message]:
    """OpenTelemetry's form: text, calls and answers are parts of one message."""
    calls, rest = list[Node](), list[Node]()
    for part in node.members["parts"].elements:
        kind = _kind(part)
        if kind == "tool_call":
            calls.append(part)
        elif kind == "tool_call_response":
            answer = part.get("response") or part.get("result")
            yield _message("tool", answer, answers_to=_id(part, "id"))
        elif kind not in ("", "reasoning"):
            rest.append(part)
    if calls or rest or role not in ("tool", "user"):
        yield _message(role, _content(rest), _asked(calls))


def _content(parts: list[Node]) -> Node | None:
    """Parts that are all text as text; others as OpenAI's parts where they can be, else as they are."""
    if not parts:
        return None
    texts = [part.value.get("content") if _kind(part) == "text" else None for part in parts]
    if all(isinstance(text, str) for text in texts):
        return node_of("".join(texts))  # type: ignore[arg-type]
    pieces = [
        dump({"type": "text", "text": text}) if isinstance(text, str) else part.text
        for part, text in zip(parts, texts, strict=True)
    ]
    return Node(f"[{','.join(pieces)}]".encode(), [part.value for part in parts])


def _of_blocks(content: Node, role: str, calls: tuple[Call, ...]) -> Iterator[Message]:
    """Anthropic's form: a reply holds `tool_use` blocks, the user message after it `tool_result` blocks."""
    asked, rest = list[Node](), list[Node]()
    for block in content.elements:
        kind = _kind(block)
        if kind == "tool_use":
            asked.append(block)
        elif kind == "tool_result":
            yield _message("tool", block.get("content"), answers_to=_id(block, "tool_use_id"))
        elif kind not in ("", "thinking", "redacted_thinking"):
            rest.append(block)
    if asked or rest:
        texts = [block.value.get("text") if _kind(block) == "text" else None for block in rest]
        if all(isinstance(text, str) for text in texts):
            held = node_of("".join(texts)) if texts else None  # type: ignore[arg-type]
        else:
            held = Node(f"[{','.join(b.text for b in rest)}]".encode(), [b.value for b in rest])
        yield _message(role, held, calls or _asked(asked))


def _kind(node: Node) -> str:
    kind = node.value.get("type") if isinstance(node.value, dict) else None
    return kind if isinstance(kind, str) else ""


def _has_flat_calls(node: Node) -> bool:
    """LangChain's calls have their name and `args` on top."""
    calls = node.get("tool_calls")
    return calls is not None and any(isinstance(c.value, dict) and "function" not in c.value for c in calls.elements)


def _calls(node: Node) -> tuple[Call, ...]:
    asked = node.get("tool_calls")
    if asked is not None and asked.elements:
        return _asked(asked.elements)
    more = node.get("additional_kwargs")
    if more is not None and more.get("tool_calls") is not None:
        return _asked(more.members["tool_calls"].elements)
    legacy = node.get("function_call")
    return _asked([legacy]) if legacy is not None else ()


def _asked(nodes: list[Node]) -> tuple[Call, ...]:
    """Calls in any of the forms; one without a name is left out, and its place stays empty."""
    if len(nodes) > MAX_PLACE:
        raise RecordError("out_of_range", "tool_calls", f"More than {MAX_PLACE:,} calls in one reply.")
    calls = []
    for index, node in enumerate(nodes):
        custom = node.get("custom")
        function = custom or node.get("function") or node
        tool_name = function.value.get("name") if isinstance(function.value, dict) else None
        if not isinstance(tool_name, str) or not tool_name:
            continue
        given = next((found for key in ("arguments", "args", "input") if (found := function.get(key))), None)
        args = read_args(given)
        if custom is not None and given is not None:
            args = Args(f'{{"input":{given.text}}}', ())
        call_id = _id(node, "call_id") or _id(node, "id")
        calls.append(Call(index, evidence.name(tool_name, "name") or "", call_id, args))
    return tuple(calls)


def _id(node: Node, key: str) -> str | None:
    value = node.value.get(key) if isinstance(node.value, dict) else None
    return evidence.name(value, key) if isinstance(value, str | int) else None


def _message(
    role: str, content: Node | None, calls: tuple[Call, ...] = (), *, answers_to: str | None = None
) -> Message:
    return Message(role, _text(role, content, calls, answers_to), calls, answers_to, content)


def _text(role: str, content: Node | None, calls: tuple[Call, ...], answers_to: str | None) -> str:
    """JSON text of a message in OpenAI form."""
    said = content.text if content is not None else "null"
    if role == "tool" and content is not None and not isinstance(content.value, str):
        said = dump(content.text)  # OpenAI's tools answer with text
    members = [f'"role":{dump(role)}', f'"content":{said}']
    if calls:
        members.append(f'"tool_calls":[{",".join(map(_call_text, calls))}]')
    if answers_to is not None:
        members.append(f'"tool_call_id":{dump(answers_to)}')
    return "{" + ",".join(members) + "}"


def _call_text(call: Call) -> str:
    function = {"name": call.tool_name, "arguments": call.args.text or "{}"}
    return dump({"id": call.call_id, "type": "function", "function": function})


def offered(node: Node | None) -> str | None:
    """The tools a model was offered, in OpenAI form; what is no definition of a tool is left out."""
    node = decoded(node)
    if node is None:
        return None
    texts = [text for element in evidence.on_one_line(node).elements if (text := _definition(element)) is not None]
    return f"[{','.join(texts[:MAX_TOOLS])}]" if texts else None


def _definition(node: Node) -> str | None:
    node = decoded(node) or node
    if not isinstance(node.value, dict):
        return None
    if isinstance(node.value.get("function"), dict):
        return node.text
    if not isinstance(node.value.get("name"), str):
        return None
    members = [f'"name":{node.members["name"].text}']
    if (description := node.get("description")) is not None:
        members.append(f'"description":{description.text}')
    schemas = (node.get(key) for key in ("parameters", "input_schema", "inputSchema"))
    if (schema := next((schema for schema in schemas if schema is not None), None)) is not None:
        members.append(f'"parameters":{schema.text}')
    return f'{{"type":"function","function":{{{",".join(members)}}}}}'


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """What LangChain's ToolMessage says of a call. `failed` is None if it has no status."""

    content: Node | None
    call_id: str | None
    failed: bool | None


def tool_answer(node: Node | None) -> ToolAnswer | None:
    """A tool's output that is a message: a dict, or a serialized constructor. None if it is anything else."""
    if node is None or not isinstance(node.value, dict):
        return None
    inner, told = _unwrapped(node)
    if not isinstance(inner.value, dict) or not isinstance(inner.value.get("tool_call_id"), str):
        return None
    if _ROLES.get(told.lower(), told) != "tool" or "content" not in inner.value:
        return None
    status = inner.value.get("status")
    return ToolAnswer(
        inner.get("content"), _id(inner, "tool_call_id"), status == "error" if isinstance(status, str) else None
    )
