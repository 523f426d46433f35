"""OpenAI's own client against the running gateway, as a program would use it."""

import asyncio
from typing import Any

import openai
import pytest

from tests.gateway.conftest import QUESTION, TOOLS, Lab

ASK: dict[str, Any] = {"model": "main", "messages": [QUESTION], "tools": TOOLS}


def script(name: str) -> dict[str, Any]:
    return {"extra_headers": {"X-Script": name}}


def test_a_reply_a_stream_and_their_usage(lab: Lab):
    client = lab.sdk()
    reply = client.chat.completions.create(**ASK, **script("one_call"))
    assert reply.choices[0].message.tool_calls[0].function.name == "get_weather"
    assert reply.usage.total_tokens
    options = {"stream": True, "stream_options": {"include_usage": True}}
    chunks = list(client.chat.completions.create(**ASK, **options, **script("plain_text:Well then.")))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "Well then."
    assert chunks[-1].usage.total_tokens
    raw = client.chat.completions.with_raw_response.create(**ASK, **script("S1"))
    assert raw.http_response.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("name", "raised"),
    [
        ("status:400", openai.BadRequestError),
        ("status:401", openai.AuthenticationError),
        ("rate_limited:1", openai.RateLimitError),
        ("S6", openai.InternalServerError),
        ("hung_up", openai.InternalServerError),
    ],
)
def test_errors_raise_what_they_raise_without_a_gateway(lab: Lab, name: str, raised: type[Exception]):
    with pytest.raises(raised):
        lab.sdk().chat.completions.create(**ASK, **script(name))


@pytest.mark.parametrize("name", ["S7", "cut_connection"])
def test_an_error_in_a_stream_reaches_the_program(lab: Lab, name: str):
    stream = lab.sdk().chat.completions.create(**ASK, stream=True, **script(name))
    with pytest.raises(openai.APIError):
        list(stream)


def test_the_client_asks_again_by_itself_after_an_overload(lab: Lab):
    asked = len(lab.model.asked)
    with pytest.raises(openai.InternalServerError):
        lab.sdk(max_retries=1).chat.completions.create(**ASK, **script("status:503"))
    assert len(lab.model.asked) == asked + 2


def test_a_program_may_stop_in_the_middle_and_ask_on(lab: Lab):
    client = lab.sdk()
    with client.chat.completions.create(**ASK, stream=True, **script("endless_stream")) as stream:
        for _ in zip(range(5), stream, strict=False):
            pass
    assert client.chat.completions.create(**ASK, **script("S1")).choices[0].message.content
    broken_off, _ = lab.turns(2)
    assert broken_off.warnings == ["client_gone"]


def test_many_at_once(lab: Lab):
    async def run() -> list[str]:
        async with openai.AsyncOpenAI(base_url=lab.url, api_key=lab.text, max_retries=0) as client:
            replies = await asyncio.gather(
                *(client.chat.completions.create(**ASK, **script(f"plain_text:{number}")) for number in range(40))
            )
        return [reply.choices[0].message.content or "" for reply in replies]

    assert asyncio.run(run()) == [str(number) for number in range(40)]
    lab.days(lambda day: (day.num_requests, day.num_gaps) == (40, 0))
    lab.turns(40)
