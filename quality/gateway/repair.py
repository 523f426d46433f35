"""Calls that come as text, as calls; and streams that come empty, told for what they are. No I/O.

Of a stream only what could become a call is held back, by whole events: all else goes on at once, and where no call was
found each byte goes on as it came.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.messages import Reply, ToolCall
from engine.parsing import StreamParser, parse
from engine.providers.completion import first_choice, read_content
from quality.gateway import wire
from quality.gateway.asked import spliced, split
from quality.gateway.events import Event, Events, TooLong
from quality.ingest.jsontext import JsonError

TOOL_CALLS = "tool_calls"
CUT = "length"  # how a stream is read that ended without saying why
MAX_HELD = 1 << 20  # characters; a text that long is none of a call
_ENDED_EARLY = frozenset(("length", "content_filter"))

type Tools = Sequence[Mapping[str, Any]]


# --- in one piece ---------------------------------------------------------------------------------------------------
def repaired_whole(body: bytes, tools: Tools) -> bytes | None:
    """The body with the calls in its text as `tool_calls`, all else as it was spelled; None if there are none."""
    try:
        members = split(body)
        choices = json.loads(members["choices"])
        if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
            return None
        message = choices[0].get("message")
        if not isinstance(message, dict) or message.get(TOOL_CALLS) or message.get("function_call"):
            return None
        reply = read_text(message, tools, choices[0].get("finish_reason"))
        if not reply.calls:
            return None
        choice = split(members["choices"][1:-1].strip())
        parts = split(choice["message"])
    except (JsonError, KeyError, ValueError, RecursionError):
        return None
    parts["content"] = wire.json_bytes(reply.text.strip() or None)
    if reply.reasoning and not (message.get("reasoning_content") or message.get("reasoning")):
        parts["reasoning_content"] = wire.json_bytes(reply.reasoning)
    parts[TOOL_CALLS] = wire.json_bytes(wire.call_values(reply.calls))
    choice |= {"message": spliced(parts), "finish_reason": wire.json_bytes(TOOL_CALLS)}
    return spliced(members | {"choices": b"[" + spliced(choice) + b"]"})


def read_text(message: Mapping[str, Any], tools: Tools, finish_reason: Any) -> Reply:
    """What the text of a message means."""
    finish = finish_reason if isinstance(finish_reason, str) else None
    return parse(read_content(message.get("content")), tools=tools, finish_reason=finish)


# --- streamed -------------------------------------------------------------------------------------------------------
@dataclass(slots=True)
class _Held:
    """An event that waits; `end` is where its text ends, counted from the first character of the reply."""

    raw: bytes
    end: int


class StreamRepair:
    """One stream on its way. `feed` and `finish` give the bytes to send. `is_empty` says, once all has come, that the
    server said nothing: then `ending` is the end that it gave, for want of another answer."""

    def __init__(self, tools: Tools, *, repairs: bool, asks_again: bool) -> None:
        self.num_calls = 0  # that came as text
        self.has_role = False
        self._events = Events()
        self._parser = StreamParser(tools) if repairs else None
        self._asks_again = asks_again
        self._held: list[_Held] = []
        self._ending: list[bytes] = []
        self._text: list[str] = []
        self._taken = 0  # characters of text so far
        self._passed = 0  # of them gone on
        self._envelope: dict[str, Any] | None = None
        self._finish_reason: str | None = None
        self._has_said = False
        self._is_over = False  # there was a reason to finish, or the end
        self._is_off = False  # all goes on as it comes

    @property
    def is_empty(self) -> bool:
        """Neither text nor call nor fault came, and nothing that was short of room."""
        return (
            self._asks_again
            and self._is_over
            and not (self._has_said or self._is_off or self._finish_reason in _ENDED_EARLY)
        )

    @property
    def ending(self) -> bytes:
        return b"".join(self._ending)

    def feed(self, chunk: bytes) -> bytes:
        if self._is_off:
            return chunk
        sent: list[bytes] = []
        try:
            sent += map(self._take, self._events.feed(chunk))
        except TooLong:
            sent.append(self._give_up())
        if self._is_off:
            sent.append(self._events.rest())
        return b"".join(sent)

    def finish(self, *, is_cut: bool = False) -> bytes:
        """What is left to send. A stream that was cut is not repaired: half of a call is none."""
        sent = [] if self._is_off else [self._take(event) for event in self._events.finish()]
        if is_cut:
            sent.append(self._give_up())
        elif not self._is_over:
            sent.append(self._decide(CUT, None))
        return b"".join(sent)

    def _take(self, event: Event) -> bytes:
        if self._is_off or event.is_comment:
            return event.raw
        if event.is_done:
            sent = b"" if self._is_over else self._decide("stop", None)
            return sent + self._end(event.raw)
        if event.is_broken or len(event.objects) != 1 or event.objects[0].get("error"):
            return self._give_up() + event.raw
        data = event.objects[0]
        self._envelope = self._envelope or wire.envelope_of(data)
        choice = first_choice(data)
        if choice is None or self._is_over:
            return self._end(event.raw) if self._is_over else event.raw
        return self._take_choice(event.raw, data, choice)

    def _take_choice(self, raw: bytes, data: Mapping[str, Any], choice: Mapping[str, Any]) -> bytes:
        delta = choice.get("delta")
        delta = delta if isinstance(delta, dict) else {}
        self.has_role = self.has_role or bool(delta.get("role"))
        if delta.get(TOOL_CALLS) or delta.get("function_call") or delta.get("refusal"):
            return self._give_up() + raw
        text = read_content(delta.get("content")) or ""
        self._has_said = self._has_said or bool(text.strip())
        finish_reason = choice.get("finish_reason")
        if not isinstance(finish_reason, str):
            return self._take_text(raw, text) if text else raw
        sent = self._take_text(b"", text)
        self._finish_reason = finish_reason
        return sent + self._decide(finish_reason, (raw, data, choice, delta))

    def _take_text(self, raw: bytes, text: str) -> bytes:
        """Feed the parser; gives the events that cannot be part of a call any more."""
        if self._parser is None:
            return raw
        self._parser.feed(text)
        self._text.append(text)
        self._taken += len(text)
        self._held.append(_Held(raw, self._taken))
        settled = self._parser.settled
        ready = next((at for at, held in enumerate(self._held) if held.end > settled), len(self._held))
        sent = b"".join(held.raw for held in self._held[:ready])
        if ready:
            self._passed = self._held[ready - 1].end
            del self._held[:ready]
        return sent + (self._give_up() if self._taken - self._passed > MAX_HELD else b"")

    def _decide(self, finish_reason: str, last: tuple[bytes, Any, Any, Any] | None) -> bytes:
        """All text has come: it holds calls, or goes on as it came. `last` is the event with the finish reason: its
        bytes, object, choice and delta."""
        self._is_over = True
        calls, left = self._read(finish_reason)
        if not calls:
            sent = b"".join(held.raw for held in self._held)
            self._held.clear()
            return sent + (self._end(last[0]) if last else b"")
        self._held.clear()
        self.num_calls = len(calls)
        envelope = self._envelope or wire.envelope_of({})
        sent = wire.chunk(envelope, {"content": left}) if left.strip() else b""
        sent += b"".join(wire.call_chunks(envelope, wire.call_values(calls)))
        if last is None:
            return sent + wire.chunk(envelope, {}, TOOL_CALLS)
        _, data, choice, delta = last
        delta = {name: value for name, value in delta.items() if name != "content"}
        return sent + wire.event({**data, "choices": [{**choice, "delta": delta, "finish_reason": TOOL_CALLS}]})

    def _read(self, finish_reason: str) -> tuple[Sequence[ToolCall], str]:
        """The calls in the text, and the visible text that has not gone on yet."""
        if self._parser is None or self._is_off:
            return (), ""
        calls = self._parser.finish(finish_reason).calls
        if not calls:
            return (), ""
        return calls, "".join(self._text)[self._passed : self._parser.settled] + self._parser.text_behind

    def _end(self, raw: bytes) -> bytes:
        """An event of the stream's end: kept while nothing was said, for another answer may come in its place."""
        if not self.is_empty:
            return raw
        self._ending.append(raw)
        return b""

    def _give_up(self) -> bytes:
        """From here on all goes on as it comes, first what was held."""
        sent = b"".join([*(held.raw for held in self._held), *self._ending])
        self._held.clear()
        self._ending.clear()
        self._is_off = True
        return sent


# --- asked again ----------------------------------------------------------------------------------------------------
def streamed_out(body: bytes, tools: Tools, *, repairs: bool, has_role: bool, wants_usage: bool) -> tuple[bytes, int]:
    """A whole answer as a stream, and how many of its calls came as text; nothing where it is no answer either."""
    if repairs and (repaired := repaired_whole(body, tools)) is not None:
        out, _ = streamed_out(repaired, tools, repairs=False, has_role=has_role, wants_usage=wants_usage)
        return out, len(json.loads(repaired)["choices"][0]["message"][TOOL_CALLS])
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        return b"", 0
    choice = first_choice(data) if isinstance(data, dict) else None
    message = choice.get("message") if choice else None
    if choice is None or not isinstance(message, dict):
        return b"", 0
    calls = message.get(TOOL_CALLS)
    calls = [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    text = message.get("content")
    if not calls and not (isinstance(text, str) and text.strip()):
        return b"", 0
    envelope = wire.envelope_of(data)
    sent = [] if has_role else [wire.chunk(envelope, {"role": "assistant"})]
    said = {name: message[name] for name in ("reasoning_content", "content") if message.get(name)}
    if said:
        sent.append(wire.chunk(envelope, said))
    sent += wire.call_chunks(envelope, calls)
    sent.append(wire.chunk(envelope, {}, choice.get("finish_reason") or (TOOL_CALLS if calls else "stop")))
    if wants_usage and isinstance(data.get("usage"), dict):
        sent.append(wire.event({**envelope, "choices": [], "usage": data["usage"]}))
    return b"".join([*sent, wire.DONE]), 0
