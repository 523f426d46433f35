"""Calls that a server lists itself: `tool_calls` of a message, its streamed fragments, the older `function_call`."""

from collections.abc import Generator, Mapping
from typing import Any
from uuid import uuid4

from engine.messages import BrokenCall, ToolCall
from engine.parsing.calls import Found, as_text, clean_name, read_arguments
from engine.parsing.extent import skip_value
from engine.parsing.jsonish import replace_surrogates
from engine.parsing.source import Broken, Cut, Source
from engine.parsing.toolbox import Toolbox


class Ids:
    """Hands out the ids of one reply: the one received where it is usable, else a new one."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    def take(self, received: Any) -> str:
        usable = isinstance(received, str) and received.strip() and received not in self._used
        call_id = replace_surrogates(received) if usable else f"call_{uuid4().hex[:24]}"
        self._used.add(call_id)
        return call_id


class _OpenCall:
    """A call whose fragments still arrive."""

    def __init__(self, index: int | None) -> None:
        self.index = index
        self.id = ""
        self.name = ""
        self.pieces: list[str] = []
        self.value: Any = None  # arguments that came as something else than text
        self.complete = False  # the arguments are a whole JSON value
        self._source = Source()
        self._extent: Generator[None, None, None] = skip_value(self._source)

    @property
    def has_arguments(self) -> bool:
        return bool(self.pieces) or self.value is not None

    @property
    def arguments(self) -> Any:
        return self.value if self.value is not None else replace_surrogates("".join(self.pieces))

    def add_name(self, name: str, tools: Toolbox) -> None:
        """Servers repeat the name with every fragment, or cut it into pieces before the arguments begin."""
        if not name or name == self.name or self.has_arguments:
            return
        whole = self.name + name
        self.name = name if name in tools and whole not in tools else whole

    def add_arguments(self, arguments: Any) -> None:
        if arguments is None or arguments == "":
            return
        if not isinstance(arguments, str):
            self.value, self.complete = arguments, True
            return
        self.pieces.append(arguments)
        if self.complete:
            return
        self._source.feed(arguments)
        try:
            next(self._extent)
        except StopIteration:
            self.complete = True
        except (Broken, Cut):
            self._extent = _endless()  # judged at the end; a generator that raised must not count as complete


def _endless() -> Generator[None, None, None]:
    while True:
        yield


class StructuredCalls:
    """Collects the calls of one reply and judges them once it is complete."""

    def __init__(self, tools: Toolbox) -> None:
        self._tools = tools
        self._open: list[_OpenCall] = []
        self._by_index: dict[int, _OpenCall] = {}  # the latest of each index
        self._by_id: dict[str, _OpenCall] = {}
        self._legacy: _OpenCall | None = None

    @property
    def any(self) -> bool:
        """Whether the reply has calls of its own, usable or not."""
        return any(call.name or call.has_arguments for call in (*self._open, self._legacy) if call)

    def add_message(self, tool_calls: Any, function_call: Any) -> None:
        """The calls of a reply that was not streamed: each entry is a call."""
        for entry in _entries(tool_calls):
            call = _OpenCall(None)
            call.id = _text(entry.get("id"))
            self._fill(call, entry.get("function"))
            self._open.append(call)
        self.add_legacy(function_call)

    def add_fragments(self, tool_calls: Any) -> None:
        """The `tool_calls` of one delta."""
        for entry in _entries(tool_calls):
            function = entry.get("function")
            function = function if isinstance(function, Mapping) else {}
            index = entry.get("index")
            index = index if isinstance(index, int) and not isinstance(index, bool) else None
            call_id, name = _text(entry.get("id")), _text(function.get("name"))
            call = self._call_of(index, call_id, name, function.get("arguments"))
            call.id = call.id or call_id
            self._fill(call, function)

    def add_legacy(self, function_call: Any) -> None:
        """A `function_call`, whole or a fragment of one."""
        if isinstance(function_call, Mapping):
            self._legacy = self._legacy or _OpenCall(None)
            self._fill(self._legacy, function_call)

    def finish(self, ids: Ids, *, truncated: bool) -> tuple[list[ToolCall], list[BrokenCall]]:
        """The calls in order, and those that must not run. In a truncated reply the last one may lack its arguments."""
        calls: list[ToolCall] = []
        broken: list[BrokenCall] = []
        ordered = self._ordered()
        for number, call in enumerate(ordered, 1):
            raw = as_text(call.arguments)
            try:
                if truncated and number == len(ordered) and not raw.strip():
                    raise Broken("the output ended before the arguments")
                found = Found(clean_name(call.name, self._tools), read_arguments(call.arguments), raw)
            except Broken as exc:
                broken.append(BrokenCall(ids.take(call.id), replace_surrogates(call.name), raw, str(exc)))
                continue
            arguments = self._tools.retyped(found.name, found.arguments)
            calls.append(ToolCall(ids.take(call.id), found.name, arguments, raw))
        return calls, broken

    def _fill(self, call: _OpenCall, function: Any) -> None:
        if isinstance(function, Mapping):
            call.add_name(_text(function.get("name")), self._tools)
            call.add_arguments(function.get("arguments"))

    def _call_of(self, index: int | None, call_id: str, name: str, arguments: Any) -> _OpenCall:
        """The call that a fragment belongs to, opened if it is a new one."""
        call = self._known(index, call_id, name)
        if call is None or _is_another(call, call_id, name, arguments):
            call = _OpenCall(index)
            self._open.append(call)
        if index is not None:
            self._by_index.setdefault(index, call)
            if call.index == index:
                self._by_index[index] = call
        if call_id:
            self._by_id[call_id] = call
        return call

    def _known(self, index: int | None, call_id: str, name: str) -> _OpenCall | None:
        """The call so far that a fragment can continue."""
        latest = self._open[-1] if self._open else None
        if index is not None and index in self._by_index:
            return self._by_index[index]
        if call_id in self._by_id:
            return self._by_id[call_id]
        if call_id or (name and index is not None):
            return None
        return latest

    def _ordered(self) -> list[_OpenCall]:
        """By index; calls without one stay behind those they came after."""
        calls = [call for call in self._open if call.name or call.has_arguments]
        if not calls and self._legacy is not None:
            return [self._legacy] if self._legacy.name or self._legacy.has_arguments else []
        keys: list[int] = []
        for call in calls:
            keys.append(call.index if call.index is not None else keys[-1] if keys else 0)
        return [calls[position] for position in sorted(range(len(calls)), key=keys.__getitem__)]


def _is_another(call: _OpenCall, call_id: str, name: str, arguments: Any) -> bool:
    """Whether a fragment that fits `call` begins another one: a new id, or a name after complete arguments."""
    if call_id and call.id and call_id != call.id:
        return bool(name) or call.complete or not call.has_arguments
    if name and call.complete:
        repeats = bool(call_id) and call_id == call.id and (not isinstance(arguments, str) or not arguments.strip())
        return not repeats
    return False


def _entries(tool_calls: Any) -> list[Mapping[str, Any]]:
    entries = tool_calls if isinstance(tool_calls, list | tuple) else [tool_calls]
    return [entry for entry in entries if isinstance(entry, Mapping)]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
