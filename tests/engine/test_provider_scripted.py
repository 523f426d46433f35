"""The scripted server itself: what it can be told to do, and the rules of the stand-in model."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from engine.providers import chooser
from engine.providers.behaviours import BEHAVIOURS
from engine.providers.scripted import ScriptedServer
from engine.providers.wire import TEXT_CALLS, Completion

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Current weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}},
            "required": ["city"],
        },
    },
}
ORDER = {
    "type": "function",
    "function": {
        "name": "get_order",
        "description": "Look up the status of an order.",
        "parameters": {
            "type": "object",
            "properties": {"order_number": {"type": "string"}},
            "required": ["order_number"],
        },
    },
}
REFUND = {
    "type": "function",
    "function": {
        "name": "refund_order",
        "description": "Pay money back.",
        "parameters": {
            "type": "object",
            "properties": {"order_id": {"type": "string"}, "amount": {"type": "number"}, "note": {"type": "string"}},
            "required": ["order_id", "amount", "note"],
        },
    },
}
TOOLS = [WEATHER, ORDER, REFUND]


def user(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


async def ask(
    server: ScriptedServer, headers: Mapping[str, str] | None = None, **body: Any
) -> tuple[httpx.Response, list[dict[str, Any]]]:
    async with httpx.AsyncClient(trust_env=False) as client:
        request = {"model": "choose", "messages": user("Hello"), "tools": TOOLS, **body}
        response = await client.post(f"{server.base_url}/chat/completions", json=request, headers=headers or {})
    lines = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: {")]
    return response, [json.loads(line) for line in lines]


@pytest.mark.parametrize(
    ("text", "tool", "arguments"),
    [
        ("What's the weather in New York, in celsius?", "get_weather", {"city": "New York", "unit": "celsius"}),
        ("Where is order 7731?", "get_order", {"order_number": "7731"}),
        (
            'Refund 12.5 for order A-7731 note "broken cup"',
            "refund_order",
            {"order_id": "A-7731", "amount": 12.5, "note": "broken cup"},
        ),
    ],
)
def test_the_stand_in_picks_a_tool_by_its_words_and_fills_it_from_the_text(
    text: str, tool: str, arguments: dict[str, Any]
) -> None:
    [(name, written)] = chooser.answer(user(text), TOOLS).calls
    assert (name, json.loads(written)) == (tool, arguments)


def test_the_stand_in_asks_for_what_it_cannot_find() -> None:
    assert chooser.answer(user("how is the weather"), TOOLS).text == "[stand-in model] To use get_weather I need: city."


def test_the_stand_in_says_what_it_is_when_no_tool_fits() -> None:
    answer = chooser.answer(user("sing a song"), TOOLS)
    assert not answer.calls
    assert answer.text.startswith("[stand-in model]")
    assert "get_weather, get_order, refund_order" in answer.text


def test_the_stand_in_retells_each_result_and_says_which_failed() -> None:
    calls = [{"id": "a", "function": {"name": "get_weather"}}, {"id": "b", "function": {"name": "get_order"}}]
    results = [
        {"role": "tool", "tool_call_id": "a", "content": "21 degrees"},
        {"role": "tool", "tool_call_id": "b", "content": "Error: HTTP 500 — oops"},
    ]
    answer = chooser.answer([*user("x"), {"role": "assistant", "tool_calls": calls}, *results], TOOLS)
    assert answer.text == "[stand-in model] get_weather says: 21 degrees get_order failed: Error: HTTP 500 — oops"


@pytest.mark.anyio
async def test_the_chunks_come_in_the_order_of_the_real_server() -> None:
    async with ScriptedServer() as server:
        response, chunks = await ask(server, model="one_call", stream=True, stream_options={"include_usage": True})
        assert response.headers["content-type"] == "text/event-stream"
        assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": None}
        first, *rest = [call for c in chunks[1:-2] for call in c["choices"][0]["delta"]["tool_calls"]]
        assert first["function"] == {"name": "get_weather", "arguments": "{"}
        assert all(set(call) == {"index", "function"} for call in rest)
        assert chunks[-2]["choices"][0]["finish_reason"] == "tool_calls"
        assert chunks[-1]["choices"] == []
        assert chunks[-1]["usage"]["completion_tokens"] > 0
        assert response.text.endswith("data: [DONE]\n\n")
        response, _ = await ask(server, model="one_call")
        [call] = response.json()["choices"][0]["message"]["tool_calls"]
        assert json.loads(call["function"]["arguments"]) == {"city": "Paris"}


@pytest.mark.anyio
async def test_a_script_a_model_name_a_header_and_a_list_choose_the_behaviour() -> None:
    async with ScriptedServer([Completion("first"), "plain_text:second"]) as server:
        answers = [await ask(server), await ask(server), await ask(server, model="plain_text:third")]
        answers.append(await ask(server, {"X-Script": "plain_text:fourth"}, model="html"))
        later = [*user("x"), {"role": "assistant", "content": "y"}]
        answers.append(await ask(server, model="html,plain_text:fifth", messages=later))
        assert [asked.body["model"] for asked in server.asked][2:] == [
            "plain_text:third",
            "html",
            "html,plain_text:fifth",
        ]
        said = [response.json()["choices"][0]["message"]["content"] for response, _ in answers]
        assert said == ["first", "second", "third", "fourth", "fifth"]


def test_every_variant_of_the_field_and_every_text_form_has_a_name() -> None:
    assert {f"S{number}" for number in range(1, 15)} <= set(BEHAVIOURS)
    assert {"hermes", "qwen_xml", "llama", "pythonic", "mistral", "deepseek", "glm", "kimi", "harmony"} <= set(
        TEXT_CALLS
    )


@pytest.mark.anyio
async def test_a_client_that_hangs_up_ends_an_endless_answer() -> None:
    async with ScriptedServer() as server, httpx.AsyncClient(trust_env=False) as client:
        body = {"model": "endless_stream", "messages": user("x"), "stream": True}
        async with client.stream("POST", f"{server.base_url}/chat/completions", json=body) as response:
            await anext(response.aiter_bytes())
            assert server.num_open == 1
        await client.aclose()
        async with asyncio.timeout(2):
            while server.num_open:
                await asyncio.sleep(0.01)
