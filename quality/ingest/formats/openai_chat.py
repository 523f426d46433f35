"""OpenAI Chat Completions, as logged.

An item is a chat, `{"messages": […], "tools": […], …}`, or a pair `{"request": {…}, "response": {…}}`. Pairs repeat the
history in each request: those of one chat are read as one log (the last request holds the results, each response the
id, time and model of its reply), whether they come as one array or as lines, in a row or between those of other chats.

`metadata.conversation_id` and `metadata.prompt_version` are our convention in the API's free map; `safety_identifier`,
before it `user`, is the contact. Only choice 0 is read: the others were not used.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from quality.ingest import evidence
from quality.ingest.history import History, Reply, turns
from quality.ingest.items import Checked, Parsed
from quality.ingest.jsontext import Node
from quality.ingest.reader import ItemError
from quality.ingest.records import RecordError, TurnRecord, fingerprint

NAME = "openai_chat"
LABEL = "OpenAI Chat Completions"

_MAX_HELD_BYTES = (
    4 * 1024 * 1024
)  # of requests held until their log is complete; values in memory are some ten times it
_MAX_LOGS = 10_000  # whose replies are remembered, some 300 bytes each


def recognise(root: Node) -> bool:
    return _is_pair(root.value) or (isinstance(root.value, dict) and isinstance(root.value.get("messages"), list))


def read(items: Iterable[Checked | ItemError]) -> Iterator[Parsed | ItemError]:
    logs = _Logs()
    for item in items:
        if isinstance(item, ItemError):
            yield item
            continue
        try:
            if _is_pair(item.root.value):
                yield from logs.add(item)
            else:
                yield Parsed(item.index, item.line, item.size, tuple(_chat(item.root)))
        except RecordError as error:
            yield item.refuse(error)
    yield from logs.close(keep_bytes=0)


def _is_pair(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("request"), dict) and "response" in value


def _chat(root: Node) -> list[TurnRecord]:
    value = root.value
    if not isinstance(value, dict):
        raise RecordError("not_an_object", "", "Expected an object with `messages`, or with `request` and `response`.")
    metadata = _metadata(value)
    conversation = evidence.name(metadata.get("conversation_id") or value.get("id"), "metadata.conversation_id")
    return turns(
        History(
            source=NAME,
            identity=conversation or fingerprint(root.text),
            messages=_messages(root, ""),
            conversation=conversation,
            contact=_contact(value),
            prompt_version=evidence.name(metadata.get("prompt_version"), "metadata.prompt_version"),
            default=Reply(model=evidence.name(value.get("model"), "model"), tools=_tools(root)),
        )
    )


def _messages(root: Node, prefix: str) -> list[Node]:
    messages = root.get("messages")
    if messages is None or not isinstance(messages.value, list):
        raise RecordError("missing_field", f"{prefix}messages", "Expected an array of messages.")
    return messages.elements


def _metadata(value: dict[str, Any]) -> dict[str, Any]:
    metadata = value.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _contact(value: dict[str, Any]) -> str | None:
    return evidence.name(value.get("safety_identifier") or value.get("user"), "safety_identifier")


def _tools(request: Node) -> str | None:
    """The tools offered, as sent; the older `functions` in the form of today."""
    functions = request.get("functions")
    if functions is None or request.get("tools") is not None:
        return evidence.toolset(request.get("tools"), "tools")
    evidence.toolset(functions, "functions")
    return "[" + ",".join(f'{{"type":"function","function":{each.text}}}' for each in functions.elements) + "]"


@dataclass(slots=True)
class _Log:
    """Pairs of one chat so far: replies by their position in the history, and the last pair while it is held."""

    identity: object
    replies: dict[int, Reply] = field(default_factory=dict)
    last: Checked | None = None
    reply: Node | None = None


class _Logs:
    """The open logs. One goes on if its last request begins the new one; it is told by a hash of those messages."""

    def __init__(self) -> None:
        self._logs: OrderedDict[bytes, _Log] = OrderedDict()
        self._held = 0

    def add(self, item: Checked) -> Iterator[Parsed | ItemError]:
        """Take a pair in; logs that make room for it come out. Raises RecordError."""
        request = item.root.members["request"]
        conversation = _conversation(item.root)
        prefixes = _prefixes(conversation, _messages(request, "request."))
        reply, known = _reply(item.root)
        log = next((found for key in reversed(prefixes) if (found := self._logs.pop(key, None))), None)
        position = len(prefixes)
        if log and position in log.replies and log.replies[position].message != known.message:
            self._logs[prefixes[-1]] = log
            yield from self._end(log)
            log = None  # the same request was answered twice: two turns, of which the newer goes on
        if log is None:
            log = _Log(conversation or known.message or fingerprint(item.root.text))
        if log.last:
            self._held -= log.last.size
        log.last, log.reply = item, reply
        log.replies[position] = known
        self._held += item.size
        self._logs[prefixes[-1]] = log
        yield from self.close(keep_bytes=_MAX_HELD_BYTES)

    def close(self, *, keep_bytes: int) -> Iterator[Parsed | ItemError]:
        """Let the oldest logs out until no more is held. Their replies stay known: if one goes on, it comes out again,
        longer, and merges with what is stored."""
        for log in list(self._logs.values()):
            if self._held <= keep_bytes:
                break
            yield from self._end(log)
        while len(self._logs) > _MAX_LOGS:
            yield from self._end(self._logs.popitem(last=False)[1])

    def _end(self, log: _Log) -> Iterator[Parsed | ItemError]:
        item, log.last = log.last, None
        if item is None:
            return
        self._held -= item.size
        try:
            yield Parsed(item.index, item.line, item.size, tuple(_log(log, item)))
        except RecordError as error:
            yield item.refuse(error)


def _prefixes(conversation: str | None, messages: list[Node]) -> list[bytes]:
    """For each count of messages a hash of the conversation's name and that many of them."""
    running = hashlib.sha256((conversation or "").encode())
    prefixes = []
    for message in messages:
        running.update(b"\0" + message.raw)
        prefixes.append(running.digest())
    if not prefixes:
        raise RecordError("missing_field", "request.messages", "Expected at least one message.")
    return prefixes


def _conversation(pair: Node) -> str | None:
    for side in ("request", "response"):
        part = pair.value[side]
        if isinstance(part, dict) and (given := _metadata(part).get("conversation_id")):
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


def _log(log: _Log, item: Checked) -> list[TurnRecord]:
    pair = item.root
    request = pair.members["request"]
    metadata = _metadata(request.value)
    messages = _messages(request, "request.")
    return turns(
        History(
            source=NAME,
            identity=log.identity,
            messages=[*messages, log.reply] if log.reply else messages,
            path="request.messages",
            conversation=_conversation(pair),
            contact=_contact(request.value),
            prompt_version=evidence.name(metadata.get("prompt_version"), "request.metadata.prompt_version"),
            default=Reply(tools=_tools(request)),
            replies=log.replies,
        )
    )
