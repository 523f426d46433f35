"""Every case of tool_call_text.jsonl: whole, as the given deltas, and as text cut into pieces in many ways."""

import random
import re
from typing import Any

import pytest

from engine.messages import Reply
from engine.parsing import StreamParser, parse
from tests.corpus.corpus import cases

SIZES = (1, 2, 3, 7)
SEEDS = range(5)
Case = dict[str, Any]


def normal(text: str) -> str:
    """Lines stripped, inner runs of blanks as one, empty lines dropped."""
    lines = (re.sub(r"\s+", " ", line.strip()) for line in text.split("\n"))
    return "\n".join(line for line in lines if line)


def same(left: Any, right: Any) -> bool:
    """Equal as JSON values: true is not 1, 1 and 1.0 are one number."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, int | float) and isinstance(right, int | float):
        return left == right
    return type(left) is type(right) and left == right


def assert_expected(case: Case, reply: Reply, how: str) -> None:
    expected = case["expected"]
    names = [call.name for call in reply.calls]
    assert names == [call["name"] for call in expected["calls"]], f"{how}: {case['why']}"
    for got, wanted in zip(reply.calls, expected["calls"], strict=True):
        assert same(got.arguments, wanted["arguments"]), f"{how}: {got.arguments} is not {wanted['arguments']}"
    ids = [call.id for call in reply.calls]
    assert all(ids), how
    assert len(set(ids)) == len(ids), how
    if case["kind"].startswith("negative"):
        assert reply.text == expected["visible_text"], how
    else:
        assert normal(reply.text) == normal(expected["visible_text"]), how


def assert_prefix(shown: str, final: str, how: str) -> None:
    assert normal(final).startswith(normal(shown)), f"{how}: showed {shown!r}, the answer is {final!r}"


def stream(case: Case, pieces: list[Any], how: str) -> None:
    """Feed the pieces, structured calls of the case last, and compare what was shown on the way and at the end."""
    source = case["input"]
    parser = StreamParser(case.get("tools"))
    if source.get("reasoning_content"):
        parser.feed({"reasoning_content": source["reasoning_content"]})
    shown = ""
    steps = []
    for piece in pieces:
        shown += parser.feed(piece)
        steps.append(shown)
    parser.feed_message(source.get("tool_calls"), source.get("function_call"))
    reply = parser.finish(reason_of(case))
    assert_expected(case, reply, how)
    for step in steps:
        assert_prefix(step, reply.text, how)


def reason_of(case: Case) -> str:
    deltas = case["input"].get("deltas")
    return (deltas[-1].get("finish_reason") if deltas else case["input"].get("finish_reason")) or "stop"


def cut_at_random(text: str, seed: int) -> list[str]:
    chance = random.Random(seed)
    pieces = []
    while text:
        size = chance.randint(1, 12)
        pieces.append(text[:size])
        text = text[size:]
    return pieces


def ends_reasoning_of_the_prompt(text: str) -> bool:
    """A `</think>` that no `<think>` precedes: a stream cannot take back what it showed before."""
    end = text.find("</think>")
    return end >= 0 and "<think>" not in text[:end]


def sent_whole() -> list[Any]:
    """Cases that were not streamed, and those whose stream was text only: its text in one piece means the same."""
    whole = []
    for parameter in cases("tool_call_text.jsonl"):
        (case,) = parameter.values
        deltas = (case or {"input": {}})["input"].get("deltas")
        if not deltas or not any((step["delta"] or {}).keys() & {"tool_calls", "function_call"} for step in deltas):
            whole.append(parameter)
    return whole


@pytest.mark.parametrize("case", sent_whole())
def test_the_whole_reply_gives_the_expected_calls_and_text(case: Case) -> None:
    source = case["input"]
    reply = parse(
        source.get("content"),
        source.get("tool_calls"),
        tools=case.get("tools"),
        finish_reason=reason_of(case),
        function_call=source.get("function_call"),
        reasoning=source.get("reasoning_content"),
    )
    assert_expected(case, reply, "whole")


@pytest.mark.parametrize("case", cases("tool_call_text.jsonl"))
def test_any_stream_of_it_gives_the_same_and_shows_no_markup(case: Case) -> None:
    source = case["input"]
    if source.get("deltas"):
        stream(case, [step["delta"] for step in source["deltas"]], "deltas")
        return
    text = source.get("content")
    if not text or ends_reasoning_of_the_prompt(text):
        stream(case, [text], "one piece")
        return
    stream(case, [text], "one piece")
    stream(case, [{"content": text, "role": "assistant"}], "one delta")
    for size in SIZES:
        stream(case, [text[at : at + size] for at in range(0, len(text), size)], f"pieces of {size}")
    for seed in SEEDS:
        stream(case, list(cut_at_random(text, seed)), f"seed {seed}")
