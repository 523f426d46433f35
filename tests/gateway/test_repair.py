"""Calls that come as text become calls; a stream that comes empty is asked for once more."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.parsing import parse
from engine.providers import wire as shapes
from quality.gateway.events import Events
from quality.gateway.repair import StreamRepair, repaired_whole
from quality.gateway.reply import read_reply
from tests.gateway.conftest import QUESTION, TOOLS, WEATHER, Lab

FORMS = sorted(shapes.TEXT_CALLS)
ARGUMENTS = {"city": "Zürich"}
PROSE = "The result is {not a call} and 1 < 2, `x = [1]` too.\n- [a list](of) things\n"


@pytest.fixture
def mending(lab: Lab) -> Lab:
    lab.endpoint("mends", repairs_text_calls=True, asks_again_when_empty=True)
    return lab


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("is_streamed", [True, False], ids=["streamed", "whole"])
def test_a_call_in_text_becomes_one_and_is_recorded_as_such(mending: Lab, form: str, is_streamed: bool):
    answer = mending.post(f"text_call:{form}", {"model": "mends", "stream": is_streamed})
    message = read_reply(answer.content, is_stream=is_streamed)
    assert message is not None
    (call,) = message.calls
    assert call["function"]["name"] == "get_weather"
    assert call["id"]
    assert json.loads(call["function"]["arguments"]).keys() == {"city"}
    assert (message.finish_reason, message.value["content"]) == ("tool_calls", None)
    (stored,) = mending.calls(1)
    assert (stored.tool_name, stored.tool_call_id) == ("get_weather", call["id"])
    assert "calls_in_text" in stored.warnings
    mending.days(lambda day: day.num_repaired == 1)


def test_clients_read_a_repaired_stream_as_any_other(mending: Lab):
    with mending.sdk().chat.completions.stream(
        model="mends",
        messages=[QUESTION],
        tools=TOOLS,
        extra_headers={"X-Script": "S3"},  # type: ignore[list-item]
    ) as stream:
        final = stream.get_final_completion().choices[0]
    assert final.finish_reason == "tool_calls"
    assert final.message.tool_calls is not None
    assert final.message.tool_calls[0].function.name == "get_weather"


@pytest.mark.parametrize("wanted", [{"tools": []}, {"tool_choice": "none"}, {"n": 2}])
@pytest.mark.parametrize("is_streamed", [True, False], ids=["streamed", "whole"])
def test_nothing_is_repaired_where_no_call_is_wanted_or_several_choices(
    mending: Lab, wanted: dict[str, Any], is_streamed: bool
):
    answer = mending.post("S3", {"model": "mends", "stream": is_streamed, **wanted})
    assert b"tool_calls" not in answer.content


@pytest.mark.parametrize(("script", "num_calls"), [("S8", 1), ("swallowed_call", 1), ("swallowed_text", 0)])
def test_an_empty_stream_is_asked_for_once_more_in_one_piece(mending: Lab, script: str, num_calls: int):
    asked = len(mending.model.asked)
    answer = mending.post(script, {"model": "mends", "stream": True, "stream_options": {"include_usage": True}})
    message = read_reply(answer.content, is_stream=True)
    assert message is not None
    assert len(message.calls) == num_calls
    assert answer.content.endswith(b"data: [DONE]\n\n")
    assert answer.content.count(b"[DONE]") == answer.content.count(b'"usage"') == answer.content.count(b'"role"') == 1
    bodies = [ask.body for ask in list(mending.model.asked)[asked:]]
    assert [body["stream"] for body in bodies] == [True, False]
    assert "stream_options" not in bodies[1]
    mending.turns(1)


def test_a_stream_that_is_empty_twice_ends_as_the_server_ended_it(mending: Lab):
    off = mending.post("empty_stream", {"stream": True})
    on = mending.post("empty_stream", {"model": "mends", "stream": True})
    assert on.content == off.content


class TestStream:
    """The stream alone, chunk by chunk."""

    @staticmethod
    def chunks(text: str, size: int = 3, finish: str = "stop") -> list[bytes]:
        deltas: list[dict[str, Any]] = [
            {"role": "assistant"},
            *({"content": piece} for piece in shapes.pieces(text, size)),
        ]
        events = [shapes.envelope([{"index": 0, "delta": delta, "finish_reason": None}], "m") for delta in deltas]
        events.append(shapes.envelope([{"index": 0, "delta": {}, "finish_reason": finish}], "m"))
        return [*(f"data: {json.dumps(event)}\n\n".encode() for event in events), b"data: [DONE]\n\n"]

    @staticmethod
    def through(chunks: list[bytes]) -> list[bytes]:
        repair = StreamRepair([WEATHER], repairs=True, asks_again=False)
        return [*(repair.feed(chunk) for chunk in chunks), repair.finish()]

    def test_text_flows_at_once_and_only_what_may_be_a_call_waits(self):
        before = self.chunks("Let me look that up for you. ")[:-2]
        call = shapes.text_call("hermes", "get_weather", ARGUMENTS)
        held = self.chunks(call)[1:-2]
        sent = self.through([*before, *held, *self.chunks("")[1:]])
        # A word that may be the head of a mark waits for its next letters, so an event may be one late.
        for number in range(1, len(before)):
            assert b"".join(sent[: number + 1]).startswith(b"".join(before[:number]))
        assert b"".join(sent[: len(before)]) == b"".join(before)
        assert set(sent[len(before) : len(before) + len(held)]) == {b""}
        whole = read_reply(b"".join(sent), is_stream=True)
        assert whole is not None
        assert whole.value["content"] == "Let me look that up for you. "
        assert [json.loads(call["function"]["arguments"]) for call in whole.calls] == [ARGUMENTS]

    def test_thoughts_in_the_text_flow_at_once_too(self):
        chunks = self.chunks("<think>What does the user want? {perhaps}")[:-2] + self.chunks("</think>Fine.")[1:]
        sent = self.through(chunks)
        assert sent[4:12] == chunks[4:12]
        assert b"".join(sent) == b"".join(chunks)

    def test_text_around_a_call_is_kept_and_nothing_is_said_twice(self):
        call = shapes.text_call("hermes", "get_weather", ARGUMENTS)
        for size in (1, 3, 7, 1000):
            whole = read_reply(b"".join(self.through(self.chunks(f"First.\n{call}\nThen.", size))), is_stream=True)
            assert whole is not None
            assert whole.value["content"].split() == ["First.", "Then."]
            assert len(whole.calls) == 1

    def test_calls_of_the_server_own_kind_win_over_text_that_looks_like_one(self):
        chunks = self.chunks(shapes.text_call("bare", "get_weather", ARGUMENTS))
        piece = {"index": 0, "id": "a", "function": {"name": "send_note", "arguments": "{}"}}
        event = shapes.envelope([{"index": 0, "delta": {"tool_calls": [piece]}, "finish_reason": None}], "m")
        chunks.insert(-2, f"data: {json.dumps(event)}\n\n".encode())
        assert b"".join(self.through(chunks)) == b"".join(chunks)

    def test_a_stream_that_is_cut_inside_a_call_goes_on_as_it_came(self):
        chunks = self.chunks(shapes.text_call("hermes", "get_weather", ARGUMENTS))[:6]
        repair = StreamRepair([WEATHER], repairs=True, asks_again=True)
        assert b"".join([*map(repair.feed, chunks), repair.finish(is_cut=True)]) == b"".join(chunks)

    @given(st.text(max_size=200) | st.just(PROSE * 3), st.integers(1, 40), st.integers(1, 50))
    def test_without_a_call_each_byte_passes_however_it_is_cut(self, text: str, size: int, packet: int):
        body = b"".join(self.chunks(text.encode(errors="replace").decode(), size))
        if parse(text, tools=[WEATHER]).calls:
            return
        packets = [body[start : start + packet] for start in range(0, len(body), packet)]
        assert b"".join(self.through(packets)) == body

    @given(st.sampled_from(FORMS), st.integers(1, 60), st.integers(1, 80))
    def test_with_one_it_is_found_however_it_is_cut(self, form: str, size: int, packet: int):
        body = b"".join(self.chunks(shapes.text_call(form, "get_weather", ARGUMENTS), size))
        packets = [body[start : start + packet] for start in range(0, len(body), packet)]
        whole = read_reply(b"".join(self.through(packets)), is_stream=True)
        assert whole is not None
        assert [json.loads(call["function"]["arguments"]) for call in whole.calls] == [ARGUMENTS]
        assert whole.finish_reason == "tool_calls"

    @given(st.binary(max_size=400), st.integers(1, 50))
    def test_any_bytes_pass_where_they_are_no_stream(self, body: bytes, packet: int):
        packets = [body[start : start + packet] for start in range(0, len(body), packet)]
        assert b"".join(self.through(packets)) == body

    @given(
        st.lists(st.sampled_from([b"data: {}", b": ping", b"", b"event: x", b"data: 7"]), max_size=12),
        st.sampled_from([b"\n", b"\r\n", b"\r"]),
        st.integers(1, 9),
    )
    def test_events_are_all_bytes_of_a_stream(self, lines: list[bytes], end: bytes, packet: int):
        body = b"".join(line + end for line in lines)
        events = Events()
        packets = [body[start : start + packet] for start in range(0, len(body), packet)]
        raws = [event.raw for piece in packets for event in events.feed(piece)]
        assert b"".join([*raws, *(event.raw for event in events.finish())]) == body


def test_a_whole_answer_keeps_the_spelling_of_all_that_is_not_repaired():
    text = json.dumps(shapes.text_call("fenced", "get_weather", ARGUMENTS))
    body = (
        '{"id":"x","created":1.50,"choices":[ {"index":0,"logprobs":null,"message":{"role":"assistant","content":'
        + text
        + ',"x_own":[1.10]},"finish_reason":"stop"} ],"usage":{"total_tokens":10e1}}'
    ).encode()
    repaired = repaired_whole(body, [WEATHER])
    assert repaired is not None
    assert b'"created":1.50' in repaired
    assert b'"x_own":[1.10]' in repaired
    assert b'"total_tokens":10e1' in repaired
    assert repaired_whole(repaired, [WEATHER]) is None
    assert repaired_whole(body.replace(text.encode(), b'"Fine."'), [WEATHER]) is None
