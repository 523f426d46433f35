"""OpenAI Responses, as logged.

An item is a pair `{"request": {…}, "response": {…}}`, or a listing, `{"items": […], …}`. Results sit in a later
request's `input`. That input is the whole history, or only what is new, if the request names the response or the
conversation that it goes on from: pairs of one chat are read as one log, whether they come as one array or as lines, in
a row or between those of other chats, as long as they come in their order.

`call_id` pairs calls and outputs, `id` does not. Calls that ran at the provider (`mcp_call`) hold their own output;
other hosted tools have no name and arguments, and are left out, as is reasoning.
`metadata.conversation_id` and `metadata.prompt_version` stand in for `conversation.id` and `prompt.version`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from quality.ingest import chat, evidence, pairs
from quality.ingest.formats.shapes import kinds, metadata_of
from quality.ingest.history import SYSTEM_ROLES, Asked, History, Outcome, Reply, Said, turns
from quality.ingest.items import Checked, Parsed
from quality.ingest.jsontext import Node
from quality.ingest.logs import Log, Logs, prefixes
from quality.ingest.reader import ItemError
from quality.ingest.records import RecordError, TurnRecord, fingerprint

NAME = "openai_responses"
LABEL = "OpenAI Responses"

_CALLS = ("function_call", "custom_tool_call", "mcp_call")
_OUTPUTS = ("function_call_output", "custom_tool_call_output")
_UNKNOWN = Reply()
MAX_OPEN_TURN_BYTES = 2 * 1024 * 1024


def recognise(root: Node) -> bool:
    return NAME in kinds(root.value)


def read(items: Iterable[Checked | ItemError]) -> Iterator[Parsed | ItemError]:
    return pairs.read(items, read_alone=_listing, logs=_Logs())


def _listing(root: Node) -> list[TurnRecord]:
    value = root.value
    nodes = root.get("items")
    if nodes is None or not isinstance(nodes.value, list):
        raise RecordError("missing_field", "items", "Expected an array of items, or `request` and `response`.")
    told = _told(root, "")
    conversation = told.conversation or evidence.name(value.get("id"), "id")
    default = Reply(
        started_at=evidence.utc_from_seconds(value.get("created_at")),
        model=evidence.name(value.get("model"), "model"),
        tools=evidence.toolset(root.get("tools"), "tools"),
    )
    items = [_Item(node, f"items[{at}]", f"#{at}") for at, node in enumerate(nodes.elements)]
    system, said = _messages([item for item in items if item.kind], default=default, replies={})
    return turns(
        History(
            source=NAME,
            identity=conversation or fingerprint(root.text),
            messages=said,
            path="items",
            conversation=conversation,
            contact=told.contact,
            prompt_version=told.prompt_version,
            system=(*told.instructions, *system),
            unique_ids=True,
        )
    )


# --- items ------------------------------------------------------------------------------------------------------------
@dataclass(slots=True)
class _Item:
    """One item and where it was found; `kind` is "" if it is none of those that are read. Raises RecordError."""

    node: Node
    path: str
    place: str
    kind: str = ""

    def __post_init__(self) -> None:
        value = self.node.value
        kind = value.get("type", "message") if isinstance(value, dict) else None
        if not isinstance(kind, str) or (kind == "message" and not isinstance(value.get("role"), str)):
            raise RecordError("wrong_type", self.path, "Expected an item: an object with a `type`, or with a `role`.")
        self.kind = kind if kind in ("message", *_CALLS, *_OUTPUTS) else ""

    @property
    def by_model(self) -> bool:
        return self.kind in _CALLS or (self.kind == "message" and self.node.value["role"] == "assistant")

    @property
    def parts(self) -> Sequence[Node]:
        """Those of a message's content."""
        return chat.parts_of(self.node.get("content"))

    def gist(self) -> object:
        """What stays the same when a client sends the item again, spelled otherwise."""
        value = self.node.value
        if self.kind == "message":
            return value["role"], chat.content(self.parts)
        return self.kind, value.get("call_id") or value.get("id") or self.node.raw


def _messages(items: list[_Item], *, default: Reply, replies: dict[int, Reply]) -> tuple[tuple[Node, ...], list[Said]]:
    """The contents of the system prompt, and the messages after it. What a model said in a row is one reply, unless
    `replies` tells, by position, that another one begins."""
    system: list[Node] = []
    said: list[Said] = []
    group: _Group | None = None
    for position, item in enumerate(items):
        if group and (position in replies or not item.by_model):
            said.extend(group.said())
            group = None
        if position in replies:
            group = _Group(replies[position], item.path, item.place)
        if item.by_model:
            group = group or _Group(default, item.path, item.place)
            group.add(item)
            continue
        if group:
            said.extend(group.said())
            group = None
        if item.kind in _OUTPUTS:
            said.append(_output(item))
        elif not said and item.node.value["role"] in SYSTEM_ROLES:
            if (content := item.node.get("content")) is not None:
                system.append(content)
        else:
            said.append(chat.plain(item.node.value["role"], item.parts, path=item.path, place=item.place))
    if group:
        said.extend(group.said())
    return tuple(system), said


class _Group:
    """Items of one reply. It is named by its first call, which may come behind words."""

    def __init__(self, reply: Reply, path: str, place: str) -> None:
        self._reply, self._path, self._place = reply, path, place
        self._texts: list[Node] = []
        self._calls: list[Asked] = []

    def add(self, item: _Item) -> None:
        if item.kind == "message":
            for part in item.parts:
                text = chat.text_part(part) or part.get("refusal")
                if text is not None and isinstance(text.value, str):
                    self._texts.append(text)
            return
        if not self._calls:
            self._path, self._place = item.path, item.place
        self._calls.append(_call(item))

    def said(self) -> Iterator[Said]:
        yield chat.asking(self._texts, self._calls, path=self._path, place=self._place, reply=self._reply)
        for call in self._calls:
            if call.outcome and (call.outcome.result is not None or call.outcome.error is not None):
                shown = chat.shown(call.outcome)
                yield chat.answering(call.tool_call_id, shown, path=self._path, place=self._place)


def _call(item: _Item) -> Asked:
    node, value = item.node, item.node.value
    hosted = item.kind == "mcp_call"
    call_id = evidence.name(value.get("id" if hosted else "call_id"), f"{item.path}.{'id' if hosted else 'call_id'}")
    warnings: tuple[str, ...] = ("incomplete",) if value.get("status") == "incomplete" else ()
    if item.kind == "custom_tool_call":
        args = chat.free_text_args(node.get("input"))
    else:
        args, odd = chat.args_of(node.get("arguments"))
        warnings += odd
    outcome = _hosted_outcome(node) if hosted else None
    return Asked(chat.tool_name_of(node, item.path), call_id, args, warnings, outcome, by_provider=hosted)


def _hosted_outcome(node: Node) -> Outcome:
    fault, outcome = node.value.get("error"), chat.outcome_of(node.get("output"))
    return Outcome(outcome.result, True, evidence.fault_text(fault)) if fault else outcome


def _output(item: _Item) -> Said:
    call_id = evidence.name(item.node.value.get("call_id"), f"{item.path}.call_id")
    output = item.node.get("output")
    shown, outcome = chat.content(chat.parts_of(output)), chat.outcome_of(output)
    return chat.answering(call_id, shown, path=item.path, place=item.place, outcome=outcome)


# --- pairs ------------------------------------------------------------------------------------------------------------
@dataclass(slots=True)
class _Told:
    """What requests and responses tell of the whole chat."""

    conversation: str | None = None
    contact: str | None = None
    prompt_version: str | None = None
    instructions: tuple[Node, ...] = ()

    def update(self, newer: "_Told") -> None:
        self.conversation = newer.conversation or self.conversation
        self.contact = newer.contact or self.contact
        self.prompt_version = newer.prompt_version or self.prompt_version
        self.instructions = newer.instructions or self.instructions


def _told(root: Node, prefix: str) -> _Told:
    value = root.value if isinstance(root.value, dict) else {}
    metadata = metadata_of(value)
    prompt = value.get("prompt")
    version = prompt.get("version") if isinstance(prompt, dict) else None
    instructions = root.get("instructions")
    return _Told(
        conversation=_conversation(value, prefix)
        or evidence.name(metadata.get("conversation_id"), f"{prefix}metadata.conversation_id"),
        contact=evidence.name(value.get("safety_identifier") or value.get("user"), f"{prefix}safety_identifier"),
        prompt_version=evidence.name(version or metadata.get("prompt_version"), f"{prefix}prompt.version"),
        instructions=(instructions,) if instructions and isinstance(instructions.value, str) else (),
    )


def _conversation(value: dict[str, Any], prefix: str) -> str | None:
    given = value.get("conversation")
    return evidence.name(given.get("id") if isinstance(given, dict) else given, f"{prefix}conversation")


@dataclass(slots=True, eq=False)
class _Log(Log):
    """`items` are all up to the newest response, but for those dropped to make room; `open_input` those of a request
    that got none."""

    told: _Told = field(default_factory=_Told)
    items: list[_Item] = field(default_factory=list)
    open_input: list[_Item] = field(default_factory=list)
    num_dropped: int = 0
    answered: set[str] = field(default_factory=set)
    last: Checked | None = None
    default: Reply = _UNKNOWN


@dataclass(slots=True)
class _Pair:
    """A pair, read. `output` is None if the request failed."""

    item: Checked
    told: _Told
    linked: str | None
    previous: str | None
    input: list[_Item]
    output: list[_Item] | None
    reply: Reply


class _Logs:
    def __init__(self) -> None:
        self._logs = Logs[_Log]()

    def add(self, item: Checked) -> Iterator[Parsed | ItemError]:
        """Take a pair in; logs that make room for it come out. Raises RecordError."""
        pair = _pair(item)
        size, items = len(pair.input), [*pair.input, *(pair.output or ())]
        keys = prefixes(pair.told.conversation, (item.gist() for item in items))
        only_new = pair.previous is not None or pair.linked is not None
        named = [fingerprint("response", pair.previous).encode()] if pair.previous else []
        named += [fingerprint("conversation", pair.linked).encode()] if pair.linked else []
        log = self._logs.take(named if only_new else reversed(keys[:size]))
        answered = pair.reply.message
        if log and answered in log.answered:
            self._logs.keep(log, log.keys)  # the same pair once more
            return
        if log and not only_new and size in log.replies:
            self._logs.keep(log, log.keys)
            log = None  # the same request was answered twice, or another chat begins alike: two turns
        if log is None:
            log = _Log(pair.told.conversation or answered or fingerprint(item.root.text))
        _extend(log, replace(pair, reply=self._logs.sharing(log, pair.reply)), only_new=only_new)
        if pair.output is not None and answered:
            named = [fingerprint("response", answered).encode(), *named[1 if pair.previous else 0 :]]
        self._logs.keep(log, named if only_new else [*named, *keys[size - 1 : size], *keys[-1:]])
        for full in self._logs.full():
            yield from _end(full)
            if full is log and only_new:
                self._logs.hold(full, _keep_open_turn(full))
            else:
                full.items, full.open_input = [], []

    def close(self) -> Iterator[Parsed | ItemError]:
        for log in self._logs.rest():
            yield from _end(log)


def _extend(log: _Log, pair: _Pair, *, only_new: bool) -> None:
    log.told.update(pair.told)
    log.last, log.default = pair.item, Reply(tools=pair.reply.tools)
    log.size = log.size + pair.item.size if only_new else pair.item.size
    log.open_input = []
    if only_new and not log.items:  # it was let out
        log.replies = {}
    if not only_new:
        log.num_dropped = 0
    items = [*log.items, *pair.input] if only_new else pair.input
    if pair.output is None:
        if only_new:
            log.open_input = pair.input
        else:
            log.items = items
        return
    log.replies[len(items)] = pair.reply
    log.items = [*items, *pair.output]
    if pair.reply.message:
        log.answered.add(pair.reply.message)


def _pair(item: Checked) -> _Pair:
    request, response = item.root.members["request"], item.root.members["response"]
    value = response.value if isinstance(response.value, dict) else {}
    told = _told(request, "request.")
    told.update(_told(response, "response."))
    tools = evidence.toolset(request.get("tools"), "request.tools")
    if tools is None and value.get("tools"):
        tools = evidence.toolset(response.get("tools"), "response.tools")
    output = response.get("output")
    read_output = None
    if output is not None and isinstance(output.value, list) and (output.value or not value.get("error")):
        read_output = _items(output.elements, "response.output") or [_nothing_said()]
    return _Pair(
        item=item,
        told=told,
        linked=_conversation(request.value, "request.") or _conversation(value, "response."),
        previous=evidence.name(request.value.get("previous_response_id"), "request.previous_response_id")
        or evidence.name(value.get("previous_response_id"), "response.previous_response_id"),
        input=_input(request),
        output=read_output,
        reply=Reply(
            message=evidence.name(value.get("id"), "response.id"),
            started_at=evidence.utc_from_seconds(value.get("created_at")),
            model=evidence.name(value.get("model") or request.value.get("model"), "response.model"),
            tools=tools,
        ),
    )


def _input(request: Node) -> list[_Item]:
    """Items of a request's input; a text alone is a message of the user."""
    given = request.get("input")
    if given is None:
        return []
    if isinstance(given.value, str):
        value = {"role": "user", "content": given.value}
        return _items([Node(f'{{"role":"user","content":{given.text}}}'.encode(), value)], "request.input")
    if not isinstance(given.value, list):
        raise RecordError("wrong_type", "request.input", "Expected a text or an array of items.")
    return _items(given.elements, "request.input")


def _nothing_said() -> _Item:
    """Stands for a reply of which nothing is read, so that it counts."""
    return _Item(Node(b'{"role":"assistant"}', {"role": "assistant"}), "response.output", "")


def _items(nodes: Iterable[Node], path: str) -> list[_Item]:
    """Those of the items that are read."""
    found = [_Item(node, f"{path}[{at}]", "") for at, node in enumerate(nodes)]
    return [item for item in found if item.kind]


def _end(log: _Log) -> Iterator[Parsed | ItemError]:
    item, log.last = log.last, None
    if item is None:
        return
    items = [*log.items, *log.open_input]
    for position, each in enumerate(items):
        each.place = f"#{log.num_dropped + position}"
    try:
        system, said = _messages(items, default=log.default, replies=log.replies)
        history = History(
            source=NAME,
            identity=log.identity,
            messages=said,
            path="request.input",
            conversation=log.told.conversation,
            contact=log.told.contact,
            prompt_version=log.told.prompt_version,
            system=(*log.told.instructions, *system),
            unique_ids=True,
        )
        yield Parsed(item.index, item.line, item.size, tuple(turns(history)))
    except RecordError as error:
        yield item.refuse(error)


def _keep_open_turn(log: _Log) -> int:
    """Drop all but the turn that a log is in: its results are still to come. Bytes that are left: none if they would be
    too many."""
    users = (at for at, item in enumerate(log.items) if not item.by_model and item.kind == "message")
    start = max(users, default=0)
    kept = log.items[start:]
    size = sum(len(item.node.raw) for item in kept)
    if size > MAX_OPEN_TURN_BYTES:
        start, kept, size = len(log.items), [], 0
    log.num_dropped += start
    log.items = kept
    log.replies = {at - start: reply for at, reply in log.replies.items() if at >= start}
    return size
