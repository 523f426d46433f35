"""Reading a completion, whole or as a stream of events, into what it means. No I/O but the listener's."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from engine.parsing import StreamParser, parse
from engine.providers.protocol import Answer, CallPiece, Listen, ModelError, TextPiece, Usage
from engine.providers.retry import is_retried
from engine.providers.sse import SSEParser

DONE = "[DONE]"
CUT = "length"  # how a stream is read that ended without a word on why: what is not complete is not guessed


class Streamed:
    """An answer that comes as server-sent events. `feed` raises `ModelError` for an error object or broken JSON."""

    def __init__(self, tools: Sequence[Mapping[str, Any]], listen: Listen) -> None:
        self.num_events = 0
        self.is_done = False
        self._events = SSEParser()
        self._parser = StreamParser(tools or None)
        self._listen = listen
        self._finish_reason: str | None = None
        self._usage: Usage | None = None
        self._model = ""
        self._positions: dict[int | str | None, int] = {}

    @property
    def is_finished(self) -> bool:
        return self.is_done or self._finish_reason is not None

    async def feed(self, chunk: bytes) -> None:
        for event in self._events.feed(chunk):
            await self._take(event)

    async def finish(self) -> Answer:
        for event in self._events.finish():
            await self._take(event)
        warnings = () if self.is_finished else ("stream_ended_without_finish_reason",)
        reply = self._parser.finish(self._finish_reason or ("stop" if self.is_done else CUT))
        return Answer(reply, self._finish_reason, self._usage or Usage(), 0, self._model, warnings)

    async def _take(self, event: str) -> None:
        self.num_events += 1
        if self.is_done or event.strip() == DONE:
            self.is_done = True
            return
        for data in read_event(event):
            raise_for_error(data)
            self._usage = read_usage(data) or self._usage
            self._model = self._model or str(data.get("model") or "")
            choice = first_choice(data)
            if choice is None:
                continue
            self._finish_reason = read_word(choice.get("finish_reason")) or self._finish_reason
            delta = choice.get("delta")
            if isinstance(delta, dict):
                await self._hear(delta)

    async def _hear(self, delta: dict[str, Any]) -> None:
        if text := self._parser.feed(delta):
            await self._listen(TextPiece(text))
        for piece in self._call_pieces(delta):
            await self._listen(piece)

    def _call_pieces(self, delta: Mapping[str, Any]) -> Iterator[CallPiece]:
        calls = delta.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            function = call.get("function") if isinstance(call, dict) else None
            if not isinstance(function, dict):
                continue
            index, given = call.get("index"), call.get("id")
            key = index if isinstance(index, int) else given if isinstance(given, str) else None
            is_first = key not in self._positions
            position = self._positions.setdefault(key, len(self._positions))
            name, arguments = function.get("name"), function.get("arguments")
            yield CallPiece(
                position,
                given if is_first and isinstance(given, str) else None,
                name if is_first and isinstance(name, str) else None,
                arguments if isinstance(arguments, str) else "",
            )


def read_whole(text: str, tools: Sequence[Mapping[str, Any]]) -> Answer:
    """The answer in a body that was not streamed. Raises `ModelError`."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ModelError("not_json", f"the answer is not JSON but begins {text[:60]!r}. Check the base URL.") from error
    if not isinstance(data, dict):
        raise ModelError("bad_reply", "the answer is JSON, but not an object.")
    raise_for_error(data)
    choice = first_choice(data)
    if choice is None:
        raise ModelError("no_choices", "the answer holds no choice.")
    message = choice.get("message")
    message = message if isinstance(message, dict) else {}
    finish_reason = read_word(choice.get("finish_reason"))
    reply = parse(
        read_content(message.get("content")),
        message.get("tool_calls"),
        tools=tools or None,
        finish_reason=finish_reason,
        function_call=message.get("function_call"),
        reasoning=message.get("reasoning_content") or message.get("reasoning"),
    )
    return Answer(reply, finish_reason, read_usage(data) or Usage(), 0, str(data.get("model") or ""))


def read_event(event: str) -> list[dict[str, Any]]:
    """The objects in an event's data: one, or one a line where a server forgot the blank lines between its events."""
    try:
        values = [json.loads(event)]
    except RecursionError as error:
        raise ModelError("bad_reply", "an event of the stream is nested too deeply.") from error
    except ValueError as error:
        lines = [line for line in event.split("\n") if line.strip() not in ("", DONE)]
        try:
            values = [json.loads(line) for line in lines]
        except (ValueError, RecursionError):
            raise ModelError("not_json", f"an event of the stream is not JSON: {event[:60]!r}.") from error
    return [value for value in values if isinstance(value, dict)]


def raise_for_error(data: Mapping[str, Any]) -> None:
    """An error object in place of an answer; its code decides as a status would."""
    error = data.get("error")
    if not error:
        return
    error = error if isinstance(error, dict) else {"message": error}
    code = error.get("code")
    status = code if isinstance(code, int) and not isinstance(code, bool) else None
    text = str(error.get("message") or json.dumps(error))[:300]
    raise ModelError("server_error", text, status=status, is_retried=status is not None and is_retried(status))


def first_choice(data: Mapping[str, Any]) -> dict[str, Any] | None:
    choices = data.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict) and choice.get("index") in (0, None):
            return choice
    return None


def read_word(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def read_content(content: Any) -> str | None:
    """Text, or the text parts of a list of parts."""
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else None


def read_usage(data: Mapping[str, Any]) -> Usage | None:
    usage = data.get("usage")
    if not isinstance(usage, dict):
        return None
    prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens")
    counts = [n if isinstance(n, int) and not isinstance(n, bool) and n >= 0 else 0 for n in (prompt, completion)]
    return Usage(counts[0], counts[1]) if any(counts) else None
