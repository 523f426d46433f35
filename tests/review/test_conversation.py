"""A turn's messages as a conversation."""

import json

import pytest

from quality.review.conversation import MAX_MESSAGES, message_text, read_conversation

CALL = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Rome"}'}}
MESSAGES = [
    {"role": "user", "content": "Weather?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL, {**CALL, "id": "c2"}]},
    {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
    {"role": "assistant", "content": "Sunny."},
]


def test_calls_stand_in_the_reply_that_asked_for_them():
    read = read_conversation(json.dumps(MESSAGES))
    assert [said.cycle for said in read.messages] == [None, 0, None, 1]
    assert [call.key for call in read.messages[1].calls] == [(0, 0), (0, 1)]
    assert read.places == {(0, 0), (0, 1)}
    assert read.messages[2].is_folded
    assert read.complete


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("words", "words"),
        (None, ""),
        ([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}], "one\ntwo"),
        ([{"type": "image_url", "image_url": {"url": "x"}}], '{"type": "image_url", "image_url": {"url": "x"}}'),
        ({"odd": 1}, '{"odd": "1"}'),
    ],
)
def test_content_of_any_shape_has_a_text(content, text):
    (said,) = read_conversation(json.dumps([{"role": "user", "content": content}])).messages
    assert said.text == text


def test_the_old_function_call_has_its_place_too():
    old = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
    assert read_conversation(json.dumps([old])).places == {(0, 0)}


def test_what_is_whole_before_a_cut_is_shown():
    text = json.dumps(MESSAGES)
    read = read_conversation(text[: text.index("sunny")])
    assert len(read.messages) == 2
    assert not read.complete


def test_a_long_text_is_cut_with_its_true_size_and_can_be_had_whole():
    text = json.dumps([{"role": "user", "content": "word " * 2000}])
    (said,) = read_conversation(text).messages
    assert (said.size, said.hidden) == (10_000, 6_000)
    assert message_text(text, 0) == "word " * 2000
    assert message_text(text, 1) is None


def test_many_messages_are_cut():
    read = read_conversation(json.dumps([{"role": "user", "content": "x"}] * (MAX_MESSAGES + 1)))
    assert len(read.messages) == MAX_MESSAGES
    assert not read.complete


@pytest.mark.parametrize("text", [None, "", "[]"])
def test_no_messages_are_no_fault(text):
    assert read_conversation(text).messages == []
    assert read_conversation(text).complete


@pytest.mark.parametrize("text", ["{}", "nonsense", "[" * 10_000, '[1, "two", null]'])
def test_other_shapes_break_nothing(text):
    assert read_conversation(text).messages == []
