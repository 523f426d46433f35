"""The registry: names, checks, and failures that become text."""

import asyncio
import json
import time
from typing import Any

import pytest

from engine.errors import ToolError
from engine.redaction import Redactor
from engine.tools import Arguments, FunctionTool, Mode, Registry, Safety, ToolContext, ToolOutcome, succeeded
from engine.tools.pending import client_tool, in_mode

DAY = {"type": "object", "properties": {"day": {"type": "string"}}, "required": ["day"]}


async def echo(arguments: Arguments, context: ToolContext) -> ToolOutcome:
    return succeeded(json.dumps(arguments), context)


def registry(execute: Any = echo, **members: Any) -> Registry:
    return Registry([FunctionTool("book", "Books.", DAY, execute, **members)])


def run(one: Registry, name: str, arguments: Any, **context: Any) -> ToolOutcome:
    return asyncio.run(one.run(name, arguments, ToolContext(**context)))


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ToolError, match="'book'"):
        Registry([*registry(), *registry()])


def test_a_tool_with_a_broken_schema_is_refused_by_name() -> None:
    with pytest.raises(ToolError, match="parameters of tool 'x'"):
        Registry([FunctionTool("x", "d", {"type": "text"}, echo)])


def test_tools_are_offered_as_a_chat_request_has_them() -> None:
    assert registry().offers() == [
        {"type": "function", "function": {"name": "book", "description": "Books.", "parameters": DAY}}
    ]


def test_a_good_call_runs_with_what_the_tool_declares() -> None:
    outcome = run(registry(), "book", {"day": "x", "tool": "delete_all"})

    assert (outcome.text, outcome.is_error) == ('{"day": "x"}', False)


def test_an_unknown_tool_is_told_by_name() -> None:
    outcome = run(registry(), "cancel", {})

    assert (outcome.text, outcome.is_error, outcome.error) == ("Error: unknown tool 'cancel'", True, "unknown_tool")


def test_bad_arguments_never_reach_the_tool() -> None:
    called = []

    async def execute(arguments: Arguments, context: ToolContext) -> ToolOutcome:
        called.append(arguments)
        return succeeded("", context)

    outcome = run(registry(execute), "book", {"day": 5})

    assert outcome.text == "Error: invalid arguments for tool 'book': $.day: 5 is not of type 'string'"
    assert outcome.error == "invalid_arguments"
    assert called == []


def test_what_the_model_reads_can_be_sent_and_what_is_kept_is_whole() -> None:
    async def execute(arguments: Arguments, context: ToolContext) -> ToolOutcome:
        return succeeded("cut \ud83d", context)

    outcome = run(registry(execute), "book", {"day": "x"})

    assert (outcome.text, outcome.result) == ("cut \ufffd", "cut \ud83d")
    assert run(registry(), "\ud800", {}).text == "Error: unknown tool '\ufffd'"


def test_a_crash_is_told_in_json_without_secrets() -> None:
    async def execute(arguments: Arguments, context: ToolContext) -> ToolOutcome:
        raise RuntimeError("bad key canary-123")

    outcome = run(registry(execute), "book", {"day": "x"}, redactor=Redactor({"KEY": "canary-123"}))

    assert outcome.text == outcome.result == '{"error": "RuntimeError: bad key {secret:KEY}"}'
    assert outcome.error == "tool_crashed"


def test_a_tool_that_hangs_is_left_at_its_deadline() -> None:
    async def execute(arguments: Arguments, context: ToolContext) -> ToolOutcome:
        await asyncio.sleep(60)
        return succeeded("", context)

    started = time.monotonic()
    outcome = run(registry(execute), "book", {"day": "x"}, deadline=started + 0.2)

    assert outcome.text == '{"error": "the tool did not answer in time"}'
    assert outcome.error == "timed_out"
    assert time.monotonic() - started < 1.5


def test_cancelling_a_call_reaches_the_tool() -> None:
    reached = []

    async def execute(arguments: Arguments, context: ToolContext) -> ToolOutcome:
        try:
            await asyncio.sleep(60)
        finally:
            reached.append(True)
        return succeeded("", context)

    async def scene() -> None:
        task = asyncio.create_task(registry(execute).run("book", {"day": "x"}, ToolContext()))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scene())
    assert reached == [True]


def test_what_the_caller_answers_is_checked_here_and_not_run() -> None:
    one = Registry([client_tool("ask_user", "Asks.", DAY)])
    tool = one.get("ask_user")

    assert tool is not None
    assert (tool.mode, tool.execute) == (Mode.CLIENT, None)
    assert one.check("ask_user", {}, ToolContext()) is not None
    assert one.check("ask_user", {"day": "x"}, ToolContext()) is None
    with pytest.raises(ToolError, match="answered by the caller"):
        run(one, "ask_user", {"day": "x"})


def test_a_tenants_mode_and_safety_go_before_the_tools_own() -> None:
    (plain,) = registry()
    one = in_mode(plain, Mode.APPROVE, Safety.SAFE)

    assert (one.mode, one.safety) == (Mode.APPROVE, Safety.SAFE)
    assert in_mode(plain, Mode.APPROVE).safety is Safety.UNSAFE
    assert run(Registry([one]), "book", {"day": "x"}).text == '{"day": "x"}'
