"""The OpenAI-compatible client against a server that sends what real servers send."""

import asyncio
import json
import time
from typing import Any

import pytest

from engine.net import Guard, Policy
from engine.providers.behaviours import TEXT, UNPARSED, Ask, Line, event, send_deltas
from engine.providers.openai import OpenAIModel, encoded
from engine.providers.protocol import Answer, CallPiece, ModelError, Piece, Request, TextPiece
from engine.providers.retry import RetryPolicy
from engine.providers.wire import TEXT_CALLS, Completion
from tests.engine.turns import AT_ONCE, CITY, call, calls, playing

pytestmark = pytest.mark.anyio

TOOLS = [
    {"type": "function", "function": {"name": name, "description": f"The {name} tool.", "parameters": CITY}}
    for name in ("get_weather", "get_news")
]


def question(tools: list[dict[str, Any]] = TOOLS, seconds: float = 10.0) -> Request:
    return Request([{"role": "user", "content": "How is it in Rome?"}], tools, time.monotonic() + seconds)


async def ask(model: OpenAIModel, request: Request | None = None) -> tuple[Answer, list[Piece]]:
    pieces: list[Piece] = []

    async def listen(piece: Piece) -> None:
        pieces.append(piece)

    return await model.answer(request or question(), listen), pieces


def spoken(pieces: list[Piece]) -> str:
    return "".join(piece.text for piece in pieces if isinstance(piece, TextPiece))


async def test_a_request_streams_and_offers_its_tools() -> None:
    async with playing() as play:
        await ask(play.model("plain_text", parameters={"temperature": 0, "max_tokens": 160}))
        [body] = play.bodies
        assert body["tools"] == TOOLS
        assert body["tool_choice"] == "auto"
        assert body["stream"] is True
        assert body["stream_options"] == {"include_usage": True}
        assert (body["temperature"], body["max_tokens"]) == (0, 160)


async def test_without_tools_a_request_names_none() -> None:
    async with playing() as play:
        await ask(play.model("plain_text"), question([]))
        assert not {"tools", "tool_choice"} & set(play.bodies[0])


@pytest.mark.parametrize(
    "behaviour",
    ["plain_text", "no_done", "null_members", "never_done:3600", "swallowed_text"],
)
async def test_text_arrives_whole_and_in_order_however_it_is_sent(
    behaviour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.providers.openai.LINGER_S", 0.1)
    async with playing() as play:
        answer, pieces = await ask(play.model(behaviour))
        assert answer.reply.text == spoken(pieces) == TEXT


async def test_bytes_may_be_split_inside_a_character() -> None:
    async with playing() as play:
        answer, pieces = await ask(play.model("crlf_and_mark"))
        assert answer.reply.text == spoken(pieces) == "Zürich, 21 °C ☀️"


@pytest.mark.parametrize(
    ("behaviour", "count"),
    [
        ("one_call", 1),
        ("parallel_calls:3", 3),
        ("text_and_call", 1),
        ("fenced_call", 1),
        ("bare_call", 1),
        ("padded_call", 1),
        ("repeated_names", 2),
        ("two_thoughts", 2),
        ("repeated_ids", 2),
        ("no_ids", 2),
        ("whole_instead_of_stream", 1),
        ("swallowed_call", 1),
        ("ping_only", 1),
        *((f"text_call:{form}", 1) for form in TEXT_CALLS),
    ],
)
async def test_calls_are_found_in_every_shape(behaviour: str, count: int) -> None:
    async with playing() as play:
        answer, pieces = await ask(play.model(behaviour))
        assert [found.name for found in answer.reply.calls] == ["get_weather", "get_news", "get_weather"][:count]
        assert all(found.arguments == {"city": "Rome"} for found in answer.reply.calls)
        assert len({found.id for found in answer.reply.calls} - {""}) == count
        assert spoken(pieces) == ("I will look that up." if behaviour == "text_and_call" else "")


async def test_a_call_is_told_piece_by_piece_while_it_is_written() -> None:
    async with playing() as play:
        answer, pieces = await ask(play.model("parallel_calls:2"))
        for index, found in enumerate(answer.reply.calls):
            mine = [piece for piece in pieces if isinstance(piece, CallPiece) and piece.index == index]
            assert (mine[0].id, mine[0].name) == (found.id, found.name)
            assert all(piece.id is None and piece.name is None for piece in mine[1:])
            assert "".join(piece.arguments for piece in mine) == found.raw_arguments


async def test_reasoning_is_kept_apart() -> None:
    async with playing() as play:
        answer, pieces = await ask(play.model("two_thoughts"))
        assert answer.reply.reasoning == "Let me look."
        assert not spoken(pieces)


async def test_an_empty_round_with_tools_is_asked_once_more_without_streaming() -> None:
    async with playing() as play:
        answer, _ = await ask(play.model("swallowed_call"))
        assert [body["stream"] for body in play.bodies] == [True, False]
        assert play.bodies[1]["tools"] == TOOLS
        assert answer.warnings == ("asked_again_without_streaming",)


async def test_an_empty_round_is_accepted_the_second_time() -> None:
    async with playing() as play:
        answer, _ = await ask(play.model("empty_stream"))
        assert answer.is_empty
        assert len(play.bodies) == 2


@pytest.mark.parametrize("behaviour", ["plain_text", "one_call", "prose_call", "unfinished_call", "bare_call"])
async def test_a_round_that_says_something_is_asked_once(behaviour: str) -> None:
    async with playing() as play:
        await ask(play.model(behaviour))
        assert len(play.bodies) == 1


async def test_an_empty_round_without_tools_is_asked_once() -> None:
    async with playing() as play:
        await ask(play.model("empty_stream"), question([]))
        assert len(play.bodies) == 1


async def test_a_call_cut_off_in_its_arguments_is_reported_and_not_made() -> None:
    async with playing() as play:
        answer, _ = await ask(play.model("unfinished_call"))
        assert not answer.reply.calls
        assert answer.finish_reason == "length"
        [broken] = answer.reply.broken
        assert broken.raw_arguments == '{"city": "Par'


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503])
async def test_passing_troubles_are_asked_again(status: int) -> None:
    async with playing(f"status:{status}", f"status:{status}", "plain_text") as play:
        request = question()
        answer, _ = await ask(play.model(), request)
        assert answer.reply.text == TEXT
        assert [exchange.status for exchange in request.exchanges] == [status, status, 200]
        assert answer.warnings == (f"asked_again_after_{status}",) * 2


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
async def test_a_refusal_is_final(status: int) -> None:
    async with playing(f"status:{status}", "plain_text") as play:
        with pytest.raises(ModelError, match=f"status {status}: scripted status {status}") as caught:
            await ask(play.model())
        assert (caught.value.code, caught.value.status, len(play.bodies)) == ("http_error", status, 1)


async def test_there_are_three_tries_and_no_more() -> None:
    async with playing(*["status:503"] * 5) as play:
        with pytest.raises(ModelError, match="503"):
            await ask(play.model())
        assert len(play.bodies) == 3


async def test_retry_after_is_waited_out() -> None:
    async with playing("rate_limited:0.3", "plain_text") as play:
        started = time.monotonic()
        await ask(play.model())
        assert 0.3 <= time.monotonic() - started < 1.0


async def test_thirty_turns_that_are_told_to_wait_come_back_spread_out() -> None:
    async with playing(*["rate_limited:0.5"] * 30, *["plain_text"] * 30) as play:
        model = play.model(retry=RetryPolicy())
        began = time.monotonic()
        back: list[float] = []

        async def one() -> None:
            await ask(model)
            back.append(time.monotonic() - began)

        await asyncio.gather(*(one() for _ in range(30)))
        assert min(back) >= 0.5
        assert max(back) - min(back) > 0.4


async def test_a_wait_beyond_the_deadline_is_not_begun() -> None:
    async with playing("rate_limited:30", "plain_text") as play:
        started = time.monotonic()
        with pytest.raises(ModelError, match="429"):
            await ask(play.model(), question(seconds=2))
        assert time.monotonic() - started < 1


async def test_output_that_the_server_could_not_parse_is_asked_for_in_another_way() -> None:
    async with playing("unparseable", "error_mid_stream", "text_call:bare") as play:
        request = question()
        answer, pieces = await ask(play.model(parameters={"temperature": 0}), request)
        assert [body["temperature"] for body in play.bodies] == [0, 0.5, 0.5]
        assert [body["tool_choice"] for body in play.bodies] == ["auto", "auto", "none"]
        assert all(body["tools"] == TOOLS for body in play.bodies)
        changed = [dict(exchange.changed) for exchange in request.exchanges]
        assert changed == [{}, {"temperature": 0.5}, {"temperature": 0.5, "tool_choice": "none"}]
        assert [found.name for found in answer.reply.calls] == ["get_weather"]
        assert not spoken(pieces)


async def test_a_warm_model_is_asked_for_its_bare_text_at_once() -> None:
    async with playing("unparseable", "plain_text") as play:
        await ask(play.model())
        assert [body["tool_choice"] for body in play.bodies] == ["auto", "none"]


async def test_a_call_that_broke_off_with_an_error_is_asked_for_again_and_told_anew() -> None:
    async def breaking(asked: Ask, line: Line) -> None:
        await line.begin()
        await send_deltas(asked, line, calls(call("get_weather", {"city": "Rome"})))
        await event(line, UNPARSED)
        await line.end()

    async with playing(breaking, "one_call") as play:
        answer, pieces = await ask(play.model())
        assert [found.name for found in answer.reply.calls] == ["get_weather"]
        names = [piece.name for piece in pieces if isinstance(piece, CallPiece) and piece.name]
        assert names == ["get_weather", "get_weather"]


async def test_what_was_shown_is_not_asked_for_again() -> None:
    async with playing("error_mid_stream:Let me see", "plain_text") as play:
        with pytest.raises(ModelError, match="peg-native") as caught:
            await ask(play.model())
        assert caught.value.code == "server_error"
        assert len(play.bodies) == 1


async def test_a_kept_connection_that_just_closed_is_no_failure() -> None:
    async with playing("plain_text", "hung_up", "plain_text") as play:
        model = play.model()
        await ask(model)
        answer, _ = await ask(model)
        assert answer.reply.text == TEXT


async def test_a_server_that_does_not_run_is_tried_three_times() -> None:
    async with playing() as play:
        url = play.server.base_url
    request = question()
    async with Guard(Policy.local()).client(url) as client:
        with pytest.raises(ModelError, match=r"cannot be reached .* Check the address") as caught:
            await ask(OpenAIModel(url, "m", client, retry=AT_ONCE), request)
    assert caught.value.code == "connect_failed"
    assert [exchange.status for exchange in request.exchanges] == [None] * 3


FAULTS = [
    ("cut_connection", "cut", '"ci'),
    ("error_mid_stream", "server_error", "peg-native"),
    ("html", "not_json", "<!doctype html>"),
    ("html:502", "http_error", "<!doctype html>"),
    ("bad_json", "not_json", "half"),
    ("no_choices", "no_choices", '"choices": []'),
    ("endless_stream", "timed_out", "and so on"),
    ("endless_pings", "timed_out", ": ping"),
    ("slow_first_token:9", "timed_out", ""),
    ("echoed_key", "http_error", "Incorrect API key"),
]


@pytest.mark.parametrize(("behaviour", "code", "kept"), FAULTS)
async def test_a_fault_has_a_name_and_leaves_its_raw_reply(behaviour: str, code: str, kept: str) -> None:
    async with playing() as play:
        request = question()
        with pytest.raises(ModelError) as caught:
            await ask(play.model(behaviour, timeout_s=0.4), request)
        assert caught.value.code == code
        assert play.server.base_url in str(caught.value)
        assert request.exchanges[-1].fault == code
        assert kept in request.exchanges[-1].body


async def test_an_answer_may_not_grow_without_end() -> None:
    async with playing() as play:
        request = question()
        with pytest.raises(ModelError, match="more than 10,000 bytes") as caught:
            await ask(play.model("endless_stream", max_bytes=10_000), request)
        assert caught.value.code == "too_large"
        assert len(request.exchanges[0].body) < 12_000


async def test_the_deadline_of_the_turn_bounds_a_request() -> None:
    async with playing() as play:
        started = time.monotonic()
        with pytest.raises(ModelError):
            await ask(play.model("endless_pings"), question(seconds=0.3))
        assert 0.25 < time.monotonic() - started < 0.6


async def test_the_key_is_sent_and_never_kept() -> None:
    async with playing() as play:
        request = question()
        with pytest.raises(ModelError) as caught:
            await ask(play.model("echoed_key", key="sk-canary-0123456789"), request)
        assert play.server.asked[0].headers["authorization"] == "Bearer sk-canary-0123456789"
        assert "{secret:MODEL_KEY}" in request.exchanges[0].body
        assert "canary" not in f"{caught.value} {request.exchanges} {play.model(key='sk-canary-0123456789')!r}"


async def test_cancelling_closes_the_connection() -> None:
    async with playing() as play:
        request = question()
        work = asyncio.ensure_future(ask(play.model("endless_stream"), request))
        while not play.server.num_open:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        async with asyncio.timeout(2):
            while play.server.num_open:
                await asyncio.sleep(0.01)
        assert request.exchanges[0].fault == "cancelled"
        assert "and so on" in request.exchanges[0].body


async def test_a_connection_is_used_again() -> None:
    async with playing() as play:
        model = play.model("one_call")
        for _ in range(5):
            await ask(model)
        assert play.server.num_open == 1


async def test_the_tokens_of_the_server_count_and_are_guessed_where_it_counts_none() -> None:
    async with playing() as play:
        answer, _ = await ask(play.model("plain_text"))
        assert (answer.usage.prompt_tokens, answer.usage.estimated) == (20, False)
        answer, _ = await ask(play.model("no_done"))
        assert answer.usage.estimated
        assert answer.usage.completion_tokens == len(TEXT) // 4


async def test_a_tenant_may_not_name_a_server_inside_unless_the_operator_lists_it() -> None:
    async with playing() as play:
        url, port = play.server.base_url, int(play.server.base_url.split(":")[2].split("/")[0])
        with pytest.raises(Exception, match="not_allowed"):
            Guard(Policy.tenant()).client(url)
        listed = Policy.tenant(allow_cidrs=["127.0.0.0/8"], allow_ports=[port])
        async with Guard(listed).client(url) as client:
            answer, _ = await ask(OpenAIModel(url, "plain_text", client, retry=AT_ONCE))
        assert answer.reply.text == TEXT


async def test_a_name_that_leads_inside_is_refused_when_it_is_dialled_and_not_tried_again() -> None:
    async def inside(host: str) -> list[str]:
        return ["10.0.0.5"]

    request = question()
    async with Guard(Policy.tenant(), resolver=inside).client("https://models.example.com/v1") as client:
        with pytest.raises(ModelError) as caught:
            await ask(OpenAIModel("https://models.example.com/v1", "m", client, retry=AT_ONCE), request)
    assert caught.value.code == "address_not_allowed"
    assert "10.0.0.5" not in str(caught.value)
    assert len(request.exchanges) == 1


def test_a_lone_surrogate_does_not_stop_a_request() -> None:
    assert json.loads(encoded({"text": "a\ud83d b ☀"}))["text"] == "a\ufffd b ☀"


async def test_calls_that_a_script_gives_arrive_as_they_were_spelled() -> None:
    async with playing(calls(call("get_weather", '{"city":  "R\\u00f3ma"}'))) as play:
        answer, _ = await ask(play.model())
        assert answer.reply.calls[0].raw_arguments == '{"city":  "R\\u00f3ma"}'
        assert answer.reply.calls[0].arguments == {"city": "Róma"}


async def test_an_error_object_in_a_whole_answer_is_an_error() -> None:
    async def failing(ask_: Any, line: Any) -> None:
        await line.whole(200, {"error": {"message": "model is loading", "code": 503}})

    async with playing(failing, Completion("Ready.")) as play:
        answer, _ = await ask(play.model())
        assert answer.reply.text == "Ready."
