"""What the scripted server can do, by name: every shape and fault that a chat server was seen to send, and some more.

`S1` to `S14` name the same behaviours by number. A name may carry an argument: `rate_limited:2`, `text_call:hermes`.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from engine.providers import chooser, wire
from engine.providers.wire import Completion, Dialect


@dataclass(frozen=True)
class Ask:
    """One request as it came; `argument` is what followed the behaviour's name."""

    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    argument: str = ""

    @property
    def is_streamed(self) -> bool:
        return bool(self.body.get("stream"))

    @property
    def tools(self) -> list[dict[str, Any]]:
        return self.body.get("tools") or []

    @property
    def messages(self) -> list[dict[str, Any]]:
        return self.body.get("messages") or []

    @property
    def cycle(self) -> int:
        """How often the model has spoken since the user last did."""
        roles = [message.get("role") for message in self.messages]
        last_user = len(roles) - 1 - roles[::-1].index("user") if "user" in roles else -1
        return roles[last_user + 1 :].count("assistant")

    def number(self, default: float) -> float:
        return float(self.argument) if self.argument else default


class Line(Protocol):
    """The way back to the client."""

    async def whole(
        self, status: int, body: Any, headers: Mapping[str, str] | None = None, content_type: str = "application/json"
    ) -> None: ...

    async def begin(self) -> None:
        """Status 200 and the head of an event stream."""

    async def write(self, text: str) -> None:
        """Text of an event stream, as it is."""

    async def end(self) -> None: ...

    def cut(self) -> None:
        """The connection breaks off in the middle of the body."""


type Behaviour = Callable[[Ask, Line], Awaitable[None]]
TEXT = "The weather in Paris is fine: 21 degrees, a light wind from the west, no rain until the evening."
UNPARSED = {
    "error": {
        "code": 500,
        "message": "The model produced output that does not match the expected peg-native format",
        "type": "server_error",
    }
}


async def send(ask: Ask, line: Line, completion: Completion, dialect: Dialect = "llamacpp") -> None:
    """A completion as the client asked for it: streamed, with its usage at the end, or whole."""
    completion, model = replace(completion, reply=len(ask.messages)), str(ask.body.get("model", ""))
    if not ask.is_streamed:
        await line.whole(200, wire.whole(completion, model))
        return
    await line.begin()
    await send_deltas(ask, line, completion, dialect)
    await finish(ask, line, completion)


async def send_deltas(ask: Ask, line: Line, completion: Completion, dialect: Dialect = "llamacpp") -> None:
    for delta in wire.deltas(completion, dialect):
        await chunk(ask, line, {"index": 0, "delta": delta, "finish_reason": None})


async def finish(ask: Ask, line: Line, completion: Completion) -> None:
    await chunk(ask, line, {"index": 0, "delta": {}, "finish_reason": completion.finish_reason})
    if (ask.body.get("stream_options") or {}).get("include_usage"):
        await event(line, {**wire.envelope([], str(ask.body.get("model", ""))), "usage": completion.usage})
    await line.write("data: [DONE]\n\n")
    await line.end()


async def chunk(ask: Ask, line: Line, *choices: dict[str, Any]) -> None:
    await event(line, wire.envelope(list(choices), str(ask.body.get("model", ""))))


async def event(line: Line, data: Any) -> None:
    await line.write(f"data: {json.dumps(data, ensure_ascii=False)}\n\n")


def call_of(ask: Ask, position: int = 0) -> tuple[str, dict[str, Any]]:
    """A call that the offered tool at this position accepts; a tool nobody offered where there is none."""
    if not ask.tools:
        return "get_weather", {"city": "Paris"}
    function = ask.tools[position % len(ask.tools)]["function"]
    return function["name"], chooser.example(function.get("parameters") or {}, chooser.last_user_text(ask.messages))


def calls_of(ask: Ask, count: int) -> tuple[tuple[str, str], ...]:
    return tuple((name, json.dumps(arguments)) for name, arguments in (call_of(ask, at) for at in range(count)))


def saying(make: Callable[[Ask], Completion], dialect: Dialect = "llamacpp") -> Behaviour:
    """The behaviour that sends one completion in full."""

    async def behave(ask: Ask, line: Line) -> None:
        await send(ask, line, make(ask), dialect)

    return behave


def text_call(ask: Ask) -> Completion:
    return Completion(wire.text_call(ask.argument or "hermes", *call_of(ask)))


def prose(ask: Ask) -> Completion:
    return Completion(
        f"I would call {call_of(ask)[0]} for this, with the city that you named, and tell you the answer."
    )


def padded(ask: Ask) -> Completion:
    name, arguments = call_of(ask)
    return Completion(calls=((name, json.dumps(arguments) + "\n" * 150),), finish="length")


def unfinished(ask: Ask) -> Completion:
    return Completion(calls=((call_of(ask)[0], '{"city": "Par'),), finish="length")


def odd_arguments(ask: Ask) -> Completion:
    name, arguments = call_of(ask)
    return Completion(calls=((name, json.dumps({**dict.fromkeys(arguments, ""), "required": ["city"], "unit": []})),))


async def streamed_only_by_name(ask: Ask, line: Line) -> None:
    """A server that cannot stream calls: it answers the stream with a keep-alive comment alone."""
    if not ask.is_streamed:
        await send(ask, line, Completion(calls=calls_of(ask, 1)))
        return
    await line.begin()
    await line.write(": ping - 2026-11-30 12:00:00.000000+00:00\n\n")
    await line.end()


async def swallowed_call(ask: Ask, line: Line) -> None:
    """A tool parser that does not match the model: the stream comes out empty, the whole answer has the call."""
    await send(ask, line, Completion() if ask.is_streamed else Completion(calls=calls_of(ask, 1)))


async def swallowed_text(ask: Ask, line: Line) -> None:
    await send(ask, line, Completion() if ask.is_streamed else Completion(TEXT))


async def rate_limited(ask: Ask, line: Line) -> None:
    headers = {"Retry-After": ask.argument or "1"}
    await line.whole(429, {"error": {"message": "Rate limit reached", "type": "requests", "code": 429}}, headers)


async def status(ask: Ask, line: Line) -> None:
    code = int(ask.number(500))
    await line.whole(code, {"error": {"message": f"scripted status {code}", "code": code}})


async def unparseable(ask: Ask, line: Line) -> None:
    await line.whole(500, UNPARSED)


async def echoed_key(ask: Ask, line: Line) -> None:
    key = ask.headers.get("authorization", "").removeprefix("Bearer ")
    await line.whole(401, {"error": {"message": f"Incorrect API key provided: {key}", "code": "invalid_api_key"}})


async def error_mid_stream(ask: Ask, line: Line) -> None:
    """200, the role, then an error object; no finish reason, no [DONE]. With an argument: text comes first."""
    await line.begin()
    await chunk(ask, line, {"index": 0, "delta": {"role": "assistant", "content": None}, "finish_reason": None})
    if ask.argument:
        await chunk(ask, line, {"index": 0, "delta": {"content": ask.argument}, "finish_reason": None})
    await event(line, UNPARSED)
    await line.end()


async def cut_connection(ask: Ask, line: Line) -> None:
    """The connection breaks inside the arguments of a call, after some text."""
    await line.begin()
    await send_deltas(ask, line, Completion(TEXT[:40]))
    delta = {"tool_calls": [{"index": 0, "id": "cut", "function": {"name": call_of(ask)[0], "arguments": '{"ci'}}]}
    await chunk(ask, line, {"index": 0, "delta": delta, "finish_reason": None})
    line.cut()


async def hung_up(ask: Ask, line: Line) -> None:
    """The connection ends before a byte of an answer, as one does that was kept alive a moment too long."""
    line.cut()


async def never_done(ask: Ask, line: Line) -> None:
    """All is said, the finish reason too, but the stream stays open."""
    await line.begin()
    await send_deltas(ask, line, Completion(TEXT))
    await chunk(ask, line, {"index": 0, "delta": {}, "finish_reason": "stop"})
    await asyncio.sleep(ask.number(3600))


async def endless_stream(ask: Ask, line: Line) -> None:
    await line.begin()
    while True:
        await chunk(ask, line, {"index": 0, "delta": {"content": "and so on, "}, "finish_reason": None})
        await asyncio.sleep(0.002)


async def endless_pings(ask: Ask, line: Line) -> None:
    """Alive for ever, without a word."""
    await line.begin()
    while True:
        await line.write(": ping\n\n")
        await asyncio.sleep(0.02)


async def slow_first_token(ask: Ask, line: Line) -> None:
    await asyncio.sleep(ask.number(10))
    await send(ask, line, Completion(TEXT))


async def slow_call(ask: Ask, line: Line) -> None:
    await asyncio.sleep(ask.number(10))
    await send(ask, line, Completion(calls=calls_of(ask, 1)))


async def html(ask: Ask, line: Line) -> None:
    page = "<!doctype html><title>502</title><h1>Bad gateway</h1>"
    await line.whole(int(ask.number(200)), page, content_type="text/html; charset=utf-8")


async def bad_json(ask: Ask, line: Line) -> None:
    broken = '{"id":"x","choices":[{"delta":{"content":"half'
    if not ask.is_streamed:
        await line.whole(200, broken)
        return
    await line.begin()
    await line.write(f"data: {broken}\n\ndata: [DONE]\n\n")
    await line.end()


async def no_choices(ask: Ask, line: Line) -> None:
    if not ask.is_streamed:
        await line.whole(200, {**wire.whole(Completion(), ""), "choices": []})
        return
    await line.begin()
    await chunk(ask, line)
    await line.write("data: [DONE]\n\n")
    await line.end()


async def whole_instead_of_stream(ask: Ask, line: Line) -> None:
    await line.whole(200, wire.whole(Completion(calls=calls_of(ask, 1), reply=len(ask.messages)), ""))


async def no_done(ask: Ask, line: Line) -> None:
    """Everything is said, but neither finish reason nor [DONE] come."""
    await line.begin()
    await send_deltas(ask, line, Completion(TEXT))
    await line.end()


async def null_members(ask: Ask, line: Line) -> None:
    """Nulls wherever a server may put one, choices with no delta, an unknown event, data that is no object."""
    await line.begin()
    await line.write(": ping\n\nevent: status\ndata: null\n\ndata: 7\n\n")
    nothing: dict[str, Any] = {
        "role": None,
        "content": None,
        "tool_calls": None,
        "function_call": None,
        "refusal": None,
    }
    spoken: list[dict[str, Any] | None] = [nothing, None, {**nothing, "tool_calls": []}, {**nothing, "content": TEXT}]
    for delta in spoken:
        await chunk(ask, line, {"index": 0, "delta": delta, "finish_reason": None, "logprobs": None})
    await chunk(ask, line, {"index": 0})
    await finish(ask, line, Completion(TEXT))


async def crlf_and_mark(ask: Ask, line: Line) -> None:
    """A byte order mark, CRLF line ends, one byte a packet."""
    await line.begin()
    choice = {"index": 0, "delta": {"content": "Zürich, 21 °C ☀️"}, "finish_reason": "stop"}
    body = json.dumps(wire.envelope([choice], ""), ensure_ascii=False)
    for character in f"\ufeffdata: {body}\r\n\r\ndata: [DONE]\r\n\r\n":
        await line.write(character)
    await line.end()


async def repeated_ids(ask: Ask, line: Line) -> None:
    """Two calls, one id."""
    await line.begin()
    for index, (name, arguments) in enumerate(calls_of(ask, 2)):
        call = {"index": index, "id": "same", "type": "function", "function": {"name": name, "arguments": arguments}}
        await chunk(ask, line, {"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None})
    await finish(ask, line, Completion(finish="tool_calls"))


async def no_ids(ask: Ask, line: Line) -> None:
    await line.begin()
    for index, (name, arguments) in enumerate(calls_of(ask, 2)):
        call = {"index": index, "function": {"name": name, "arguments": arguments}}
        await chunk(ask, line, {"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None})
    await finish(ask, line, Completion(finish="tool_calls"))


async def two_thoughts(ask: Ask, line: Line) -> None:
    """Reasoning in a field of its own, interleaved calls, finish reason `stop` in spite of them."""
    await send(ask, line, Completion(calls=calls_of(ask, 2), reasoning="Let me look.", finish="stop"), "vllm")


BEHAVIOURS: dict[str, Behaviour] = {
    "choose": saying(lambda ask: chooser.answer(ask.messages, ask.tools)),
    "plain_text": saying(lambda ask: Completion(ask.argument or TEXT)),
    "one_call": saying(lambda ask: Completion(calls=calls_of(ask, 1))),
    "parallel_calls": saying(lambda ask: Completion(calls=calls_of(ask, int(ask.number(3))))),
    "text_and_call": saying(lambda ask: Completion("I will look that up.", calls=calls_of(ask, 1))),
    "fenced_call": saying(lambda ask: Completion(wire.text_call("fenced", *call_of(ask)))),
    "bare_call": saying(lambda ask: Completion(wire.text_call("bare", *call_of(ask)))),
    "text_call": saying(text_call),
    "prose_call": saying(prose),
    "unknown_tool": saying(lambda ask: Completion(calls=(("ThaiRestaurant", "{}"),))),
    "broken_arguments": saying(lambda ask: Completion(calls=((call_of(ask)[0], "{'city': Paris"),))),
    "odd_arguments": saying(odd_arguments),
    "padded_call": saying(padded),
    "unfinished_call": saying(unfinished),
    "repeated_names": saying(lambda ask: Completion(calls=calls_of(ask, 2)), "repeating"),
    "two_thoughts": two_thoughts,
    "repeated_ids": repeated_ids,
    "no_ids": no_ids,
    "swallowed_call": swallowed_call,
    "swallowed_text": swallowed_text,
    "empty_stream": saying(lambda ask: Completion()),
    "ping_only": streamed_only_by_name,
    "rate_limited": rate_limited,
    "status": status,
    "unparseable": unparseable,
    "echoed_key": echoed_key,
    "error_mid_stream": error_mid_stream,
    "cut_connection": cut_connection,
    "hung_up": hung_up,
    "never_done": never_done,
    "endless_stream": endless_stream,
    "endless_pings": endless_pings,
    "slow_first_token": slow_first_token,
    "slow_call": slow_call,
    "html": html,
    "bad_json": bad_json,
    "no_choices": no_choices,
    "whole_instead_of_stream": whole_instead_of_stream,
    "no_done": no_done,
    "null_members": null_members,
    "crlf_and_mark": crlf_and_mark,
}
BEHAVIOURS |= {
    "S1": BEHAVIOURS["plain_text"],
    "S2": BEHAVIOURS["one_call"],
    "S3": BEHAVIOURS["fenced_call"],
    "S4": BEHAVIOURS["bare_call"],
    "S5": BEHAVIOURS["prose_call"],
    "S6": BEHAVIOURS["unparseable"],
    "S7": BEHAVIOURS["error_mid_stream"],
    "S8": BEHAVIOURS["ping_only"],
    "S9": BEHAVIOURS["repeated_names"],
    "S10": BEHAVIOURS["padded_call"],
    "S11": BEHAVIOURS["slow_first_token"],
    "S12": BEHAVIOURS["odd_arguments"],
    "S13": BEHAVIOURS["two_thoughts"],
    "S14": BEHAVIOURS["one_call"],  # the same call after its own result, for as long as it is asked
}
