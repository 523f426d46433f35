"""Anthropic Messages, as logged.

An item is a chat, `{"messages": […], "system": …, "tools": […], …}`, or a pair `{"request": {…}, "response": {…}}`,
whose response may be the list of a stream's events. Pairs repeat the history in each request: those of one chat are
read as one log, whatever moved between them that is no content (`cache_control`, reasoning that was dropped).

Results come as blocks of a later message of the user, which begins a new turn only if it holds anything else; the id
pairs them, wherever they are. What ran at the provider (`server_tool_use`, `mcp_tool_use`) has its result in the same
message. The API knows no conversation and no time; `metadata.conversation_id` and `metadata.prompt_version` are our
convention.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from quality.ingest import chat, evidence, pairs
from quality.ingest.formats import anthropic_stream
from quality.ingest.formats.shapes import kinds, metadata_of
from quality.ingest.history import SYSTEM_ROLES, Asked, History, Outcome, Reply, Said, turns
from quality.ingest.items import Checked, Parsed
from quality.ingest.jsontext import Node, storable
from quality.ingest.logs import prefixes
from quality.ingest.reader import ItemError
from quality.ingest.records import RecordError, TurnRecord, fingerprint

NAME = "anthropic_messages"
LABEL = "Anthropic Messages"

_PROVIDER = "anthropic"
_HOSTED_CALLS = ("server_tool_use", "mcp_tool_use")
_CALLS = ("tool_use", *_HOSTED_CALLS)
_REASONING = ("thinking", "redacted_thinking")


def recognise(root: Node) -> bool:
    return NAME in kinds(root.value)


def read(items: Iterable[Checked | ItemError]) -> Iterator[Parsed | ItemError]:
    return pairs.read(items, read_alone=_chat, logs=pairs.PairLogs(read_pair=_pair, read_log=_log))


def _chat(root: Node) -> list[TurnRecord]:
    value = root.value
    if not isinstance(value, dict):
        raise RecordError("not_an_object", "", "Expected an object with `messages`, or with `request` and `response`.")
    model = evidence.name(value.get("model"), "model")
    default = Reply(model=model, tools=evidence.toolset(root.get("tools"), "tools"))
    system, said = _messages(chat.messages_of(root), "messages", default, {})
    conversation = evidence.name(metadata_of(value).get("conversation_id") or value.get("id"), "id")
    identity = conversation or fingerprint(root.text)
    return turns(_history(root, "", system, said, identity=identity, conversation=conversation))


def _history(
    request: Node,
    prefix: str,
    system: list[Node],
    said: list[Said],
    *,
    identity: object,
    conversation: str | None,
) -> History:
    metadata = metadata_of(request.value)
    told = request.get("system")
    return History(
        source=NAME,
        identity=identity,
        messages=said,
        path=f"{prefix}messages",
        conversation=conversation,
        contact=evidence.name(metadata.get("user_id"), f"{prefix}metadata.user_id"),
        prompt_version=evidence.name(metadata.get("prompt_version"), f"{prefix}metadata.prompt_version"),
        provider=_PROVIDER,
        system=(*([told] if told else []), *system),
        unique_ids=True,
    )


# --- messages ---------------------------------------------------------------------------------------------------------
def _messages(
    nodes: Sequence[Node], path: str, default: Reply, replies: Mapping[int, Reply]
) -> tuple[list[Node], list[Said]]:
    """Contents of a system prompt that stands among the messages, as with other formats, and the messages after it."""
    system: list[Node] = []
    said: list[Said] = []
    for position, node in enumerate(nodes):
        where = f"{path}[{position}]"
        if not said and chat.role_of(node, where) in SYSTEM_ROLES:
            if (content := node.get("content")) is not None:
                system.append(content)
        else:
            said.extend(_said(node, position, where, replies.get(position, default)))
    return system, said


def _said(node: Node, position: int, path: str, reply: Reply) -> Iterator[Said]:
    """One message as those of a chat: a result is a message of its own there. Raises RecordError."""
    role, place = chat.role_of(node, path), f"#{position}"
    blocks = list(_blocks(node, path))
    results = {block.result_of: block for block in blocks if block.is_result and block.result_of}
    if role == "assistant":
        texts = [text for block in blocks if (text := chat.text_part(block.node))]
        calls = [_call(block, results) for block in blocks if block.kind in _CALLS]
        yield chat.asking(texts, calls, path=path, place=place, reply=reply)
        told = {call.tool_call_id for call in calls}
        for block in blocks:
            if block.is_result:
                answer = _answer(block, place)
                yield replace(answer, answer=None) if block.result_of in told else answer
        return
    yield from (_answer(block, place) for block in blocks if block.is_result)
    rest = [block.node for block in blocks if not block.is_result]
    if rest or not blocks:
        yield chat.plain(role, rest, path=path, place=place)


@dataclass(frozen=True, slots=True)
class _Block:
    """One block of a message's content, text alone included."""

    node: Node
    path: str
    kind: str

    @property
    def is_result(self) -> bool:
        return self.kind.endswith("tool_result")

    @property
    def result_of(self) -> str | None:
        """Raises RecordError."""
        return evidence.name(self.node.value.get("tool_use_id"), f"{self.path}.tool_use_id")


def _blocks(message: Node, path: str) -> Iterator[_Block]:
    """Reasoning is left out. Raises RecordError."""
    content = message.get("content")
    for position, node in enumerate(chat.parts_of(content)):
        where = f"{path}.content[{position}]" if content and isinstance(content.value, list) else f"{path}.content"
        if isinstance(node.value, str):
            yield _Block(node, where, "text")
        elif not isinstance(node.value, dict) or not isinstance(node.value.get("type"), str):
            raise RecordError("wrong_type", where, "Expected a text, or blocks: objects with a `type`.")
        elif node.value["type"] not in _REASONING:
            yield _Block(node, where, node.value["type"])


def _call(block: _Block, results: dict[str, _Block]) -> Asked:
    call_id = evidence.name(block.node.value.get("id"), f"{block.path}.id")
    tool_name = chat.tool_name_of(block.node, block.path)
    args, warnings = chat.args_of(block.node.get("input"))
    hosted = block.kind in _HOSTED_CALLS
    own = results.get(call_id or "")
    return Asked(tool_name, call_id, args, warnings, _outcome(own.node) if own else None, by_provider=hosted)


def _outcome(result: Node) -> Outcome:
    """A result without content is an empty one. Errors of the provider's own tools are objects with an `error_code`."""
    content, flag = result.get("content"), result.value.get("is_error")
    value = content.value if content else None
    if isinstance(value, dict) and isinstance(value.get("error_code"), str):
        assert content is not None
        return Outcome(content.text, True, storable(value["error_code"]))
    return chat.outcome_of(content or Node(b'""', ""), flag=flag if isinstance(flag, bool) else None)


def _answer(block: _Block, place: str) -> Said:
    shown, outcome = chat.content(chat.parts_of(block.node.get("content"))), _outcome(block.node)
    return chat.answering(block.result_of, shown, path=block.path, place=place, outcome=outcome)


# --- pairs ------------------------------------------------------------------------------------------------------------
def _pair(root: Node) -> pairs.Pair:
    conversation = _conversation(root)
    messages = chat.messages_of(root.members["request"], "request.")
    answer, known = _reply(root)
    keys = prefixes(conversation, _gists([*messages, *([answer] if answer else [])]))
    return pairs.Pair(keys[: len(messages)], keys[-1] if answer else None, known, conversation)


def _gists(messages: Sequence[Node]) -> Iterator[object]:
    for position, node in enumerate(messages):
        said = _said(node, position, f"request.messages[{position}]", Reply())
        yield [chat.gist(each, None if each.calls else each.text) for each in said]


def _conversation(pair: Node) -> str | None:
    given = metadata_of(pair.value["request"]).get("conversation_id")
    return evidence.name(given, "request.metadata.conversation_id")


def _reply(pair: Node) -> tuple[Node | None, Reply]:
    """The message (None: the request failed), and what the response tells of it."""
    request, response = pair.members["request"], anthropic_stream.message_of(pair.members["response"])
    value = response.value if isinstance(response.value, dict) else {}
    reply = Reply(
        message=evidence.name(value.get("id"), "response.id"),
        model=evidence.name(value.get("model") or request.value.get("model"), "response.model"),
        tools=evidence.toolset(request.get("tools"), "request.tools"),
    )
    content = response.get("content")
    if content is None:
        return None, reply
    told = {"role": "assistant", "content": content.value}
    return Node(f'{{"role":"assistant","content":{content.text}}}'.encode(), told), reply


def _log(root: Node, log: pairs.PairLog) -> list[TurnRecord]:
    request = root.members["request"]
    messages, (answer, known) = chat.messages_of(request, "request."), _reply(root)
    default = Reply(tools=known.tools)
    system, said = _messages(messages, "request.messages", default, log.replies)
    if answer is not None:
        said.extend(_said(answer, len(messages), "response", known))
    return turns(_history(request, "request.", system, said, identity=log.identity, conversation=_conversation(root)))
