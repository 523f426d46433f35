"""OpenAI Chat Completions, as logged.

An item is a chat, `{"messages": […], "tools": […], …}`, or a pair `{"request": {…}, "response": {…}}`. Pairs repeat the
history in each request: those of one chat are read as one log (the last request holds the results, each response the
id, time and model of its reply), whether they come as one array or as lines, in a row or between those of other chats.

`metadata.conversation_id` and `metadata.prompt_version` are our convention in the API's free map; `safety_identifier`,
before it `user`, is the contact. Only choice 0 is read: the others were not used.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from quality.ingest import chat, evidence, pairs
from quality.ingest.formats.shapes import kinds, metadata_of
from quality.ingest.history import History, Reply, turns
from quality.ingest.items import Checked, Parsed
from quality.ingest.jsontext import Node
from quality.ingest.logs import prefixes
from quality.ingest.reader import ItemError
from quality.ingest.records import RecordError, TurnRecord, fingerprint

NAME = "openai_chat"
LABEL = "OpenAI Chat Completions"


def recognise(root: Node) -> bool:
    return NAME in kinds(root.value)


def read(items: Iterable[Checked | ItemError]) -> Iterator[Parsed | ItemError]:
    return pairs.read(items, read_alone=_chat, logs=pairs.PairLogs(read_pair=_pair, read_log=_log))


def _chat(root: Node) -> list[TurnRecord]:
    value = root.value
    if not isinstance(value, dict):
        raise RecordError("not_an_object", "", "Expected an object with `messages`, or with `request` and `response`.")
    metadata = metadata_of(value)
    conversation = evidence.name(metadata.get("conversation_id") or value.get("id"), "metadata.conversation_id")
    default = Reply(model=evidence.name(value.get("model"), "model"), tools=_tools(root))
    system, said = chat.read_messages(chat.messages_of(root), "messages", default=default)
    return turns(
        History(
            source=NAME,
            identity=conversation or fingerprint(root.text),
            messages=said,
            conversation=conversation,
            contact=_contact(value),
            prompt_version=evidence.name(metadata.get("prompt_version"), "metadata.prompt_version"),
            system=system,
        )
    )


def _contact(value: dict[str, Any]) -> str | None:
    return evidence.name(value.get("safety_identifier") or value.get("user"), "safety_identifier")


def _tools(request: Node) -> str | None:
    """The tools offered, as sent; the older `functions` in the form of today."""
    functions = request.get("functions")
    if functions is None or request.get("tools") is not None:
        return evidence.toolset(request.get("tools"), "tools")
    evidence.toolset(functions, "functions")
    return "[" + ",".join(f'{{"type":"function","function":{each.text}}}' for each in functions.elements) + "]"


def _pair(root: Node) -> pairs.Pair:
    conversation = _conversation(root)
    messages = chat.messages_of(root.members["request"], "request.")
    answer, known = _reply(root)
    keys = prefixes(
        conversation, (_gist(node, at) for at, node in enumerate([*messages, *([answer] if answer else [])]))
    )
    return pairs.Pair(keys[: len(messages)], keys[-1] if answer else None, known, conversation)


def _gist(node: Node, position: int) -> object:
    said = chat.read_message(node, position, f"request.messages[{position}]", reply=Reply())
    return chat.gist(said, node.value.get("content"))


def _conversation(pair: Node) -> str | None:
    for side in ("request", "response"):
        part = pair.value[side]
        if isinstance(part, dict) and (given := metadata_of(part).get("conversation_id")):
            return evidence.name(given, f"{side}.metadata.conversation_id")
    return None


def _reply(pair: Node) -> tuple[Node | None, Reply]:
    """The message of choice 0 (None: the request failed), and what the response tells of it."""
    request, response = pair.members["request"], pair.members["response"]
    value = response.value if isinstance(response.value, dict) else {}
    reply = Reply(
        message=evidence.name(value.get("id"), "response.id"),
        started_at=evidence.utc_from_seconds(value.get("created")),
        model=evidence.name(value.get("model") or request.value.get("model"), "response.model"),
        tools=_tools(request),
    )
    choices = response.get("choices")
    for choice in choices.elements if choices else []:
        if isinstance(choice.value, dict) and choice.value.get("index", 0) == 0:
            return choice.get("message"), reply
    return None, reply


def _log(root: Node, log: pairs.PairLog) -> list[TurnRecord]:
    request = root.members["request"]
    metadata = metadata_of(request.value)
    messages, (answer, _) = chat.messages_of(request, "request."), _reply(root)
    system, said = chat.read_messages(
        [*messages, answer] if answer else messages,
        "request.messages",
        default=Reply(tools=_tools(request)),
        replies=log.replies,
    )
    return turns(
        History(
            source=NAME,
            identity=log.identity,
            messages=said,
            path="request.messages",
            conversation=_conversation(root),
            contact=_contact(request.value),
            prompt_version=evidence.name(metadata.get("prompt_version"), "request.metadata.prompt_version"),
            system=system,
        )
    )
