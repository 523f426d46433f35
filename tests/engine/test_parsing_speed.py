"""Hostile text costs about as much per character as plain text, and never more than in proportion to its length."""

import time

import pytest

from engine.parsing import StreamParser, parse

SIZE = 200_000
PIECE = 16
PLAIN = "The quick brown fox jumps over the lazy dog, and runs away.\n"
TOOLS = [{"type": "function", "function": {"name": "get_tide", "parameters": {"type": "object", "properties": {}}}}]
HOSTILE = {
    "angle brackets": "<",
    "square brackets": "[",
    "braces": "{",
    "braces on lines": "\n{",
    "brackets on lines": "\n[",
    "quotes": '"',
    "backslashes": "\\",
    "backticks": "`",
    "fences": "```\n",
    "line breaks": "\n",
    "blanks": " ",
    "flowers": "✿",
    "open tags": "<tool_call>",
    "open objects": "<tool_call>{",
    "open strings": '<tool_call>{"',
    "open calls": '<tool_call>{"name": "get_tide", "arguments": {"port": "',
    "open lists": "<tool_call>[[[[[[[[",
    "open functions": "<function=",
    "open parameters": "<tool_call>\n<function=x>\n<parameter=a>\n",
    "parameter ends": "<tool_call>\n<function=x>\n<parameter=a>\n</parameter> ",
    "function ends": "<tool_call>\n<function=x>\n<parameter=a>\n</parameter></function> ",
    "broken wrappers": "<tool_call><function=x><parameter=a></tool_call>",
    "closed garbage": '<tool_call>{"</tool_call>',
    "stray ends": "</tool_call>",
    "open reasoning": "<think>",
    "empty reasoning": "<think></think>",
    "reasoning in backticks": "<think>`</think>` ",
    "tags in backticks": "`<tool_call>` ",
    "an odd backtick": "`<tool_call>",
    "mistral": "[TOOL_CALLS]",
    "mistral names": "[TOOL_CALLS]x{",
    "deepseek": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>",
    "dsml": '<｜DSML｜function_calls><｜DSML｜invoke name="x">',
    "glm": "<tool_call>x<arg_key>a</arg_key><arg_value>",
    "kimi": "<|tool_calls_section_begin|><|tool_call_begin|>",
    "kimi k3": "<|open|>tools<|sep|><|open|>call ",
    "harmony": "<|channel|>analysis<|message|>",
    "harmony headers": "<|start|>assistant<|channel|>",
    "recipients": "to=functions.get_tide ",
    "gemma": '<|tool_call>call:x{a:<|"|>',
    "invoke": '<minimax:tool_call><invoke name="a"><parameter name="b">',
    "pythonic": "<|python_start|>[a(b='",
    "plain calls": '\n{"name": "get_tide", "arguments": {',
    "a fence that never ends": '```json\n{"name": "get_tide", "arguments": {"a": "',
}


def seconds(text: str) -> tuple[float, float]:
    """CPU time to read the text whole, and in pieces."""
    begin = time.process_time()
    parse(text, tools=TOOLS)
    whole = time.process_time() - begin
    begin = time.process_time()
    parser = StreamParser(TOOLS)
    for at in range(0, len(text), PIECE):
        parser.feed(text[at : at + PIECE])
    parser.finish("stop")
    return whole, time.process_time() - begin


def repeat(unit: str, size: int) -> str:
    return (unit * (size // len(unit) + 1))[:size]


def best(unit: str) -> tuple[float, float]:
    """The least of three tries: what else runs on the machine only ever adds to it."""
    whole, streamed = zip(*(seconds(repeat(unit, SIZE)) for _ in range(3)), strict=True)
    return min(whole), min(streamed)


@pytest.fixture(scope="module")
def plain() -> float:
    """Seconds for plain text in pieces: what an ordinary answer costs."""
    return best(PLAIN)[1]


@pytest.mark.slow
@pytest.mark.parametrize("unit", [pytest.param(unit, id=name) for name, unit in HOSTILE.items()])
def test_hostile_text_costs_little_more_than_plain_text(unit: str, plain: float) -> None:
    whole, streamed = best(unit)
    assert streamed < 12 * plain
    assert whole < 12 * plain


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["<", "<tool_call>", "<function=", "\n{"])
def test_ten_times_the_text_takes_about_ten_times_the_time(unit: str) -> None:
    small = min(sum(seconds(repeat(unit, SIZE))) for _ in range(2))
    assert sum(seconds(repeat(unit, 10 * SIZE))) < 25 * max(small, 0.01)


@pytest.mark.slow
def test_a_long_call_is_read_in_linear_time() -> None:
    value = repeat('line <b>1</b> & "q" \\\\ </parameter> </function> {x}\n', SIZE)
    call = f"<tool_call>\n<function=save>\n<parameter=text>\n{value}\n</parameter>\n</function>\n</tool_call>"
    parser = StreamParser()
    for at in range(0, len(call), 4):
        parser.feed(call[at : at + 4])
    assert parser.finish("stop").calls[0].arguments == {"text": value}
