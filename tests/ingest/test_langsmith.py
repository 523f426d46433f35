import json
from typing import Any

import pytest

from quality.ingest.records import CallRecord
from tests.ingest.helpers import lines, refusals, take, turns

ANSWER = {"type": "tool", "tool_call_id": "call_1", "content": "sent", "status": "success"}


def run(number: int, kind: str, **more: Any) -> dict[str, Any]:
    return {
        "id": f"r-{number}",
        "trace_id": "r-0",
        "parent_run_id": "r-0" if number else None,
        "name": "get_order" if kind == "tool" else "agent",
        "run_type": kind,
        "start_time": f"2026-05-03T09:45:0{number}.000000",
        "end_time": f"2026-05-03T09:45:0{number}.100000",
        "inputs": {"n": "7"},
        "outputs": {"output": ANSWER},
        "error": None,
        "status": "success",
        "extra": {"metadata": {}},
        "session_id": "project",
        **more,
    }


def model(number: int, *calls: str, **more: Any) -> dict[str, Any]:
    asked = [{"id": call_id, "name": "get_order", "args": {"n": "7"}} for call_id in calls]
    message = {"lc": 1, "type": "constructor", "id": ["AIMessage"], "kwargs": {"content": "", "tool_calls": asked}}
    given = [[{"lc": 1, "type": "constructor", "id": ["HumanMessage"], "kwargs": {"content": "Order 7?"}}]]
    return run(
        number,
        "llm",
        **{
            "inputs": {"messages": given},
            "outputs": {"generations": [[{"text": "", "message": message}]]},
            "extra": {"metadata": {"ls_provider": "OpenAI", "ls_model_name": "m"},
                      "invocation_params": {"tools": [{"type": "function", "function": {"name": "get_order"}}]}},
        } | more,
    )  # fmt: skip


def call(*runs: dict[str, Any]) -> CallRecord:
    (turn,) = turns(list(runs))
    (found,) = turn.calls
    return found


def test_a_flat_list_lines_and_nested_runs_are_one():
    flat = [run(0, "chain"), run(2, "tool"), model(1, "call_1")]
    wanted = turns(flat)
    nested = {**flat[0], "child_runs": [{**flat[2], "child_runs": [flat[1]]}]}
    assert turns(lines(*flat)) == wanted
    (found,) = turns(nested)
    assert (found.calls, found.messages) == (wanted[0].calls, wanted[0].messages)
    bare = [{k: v for k, v in each.items() if k not in ("trace_id", "parent_run_id")} for each in flat]
    (found,) = turns({**bare[0], "child_runs": bare[1:]})
    assert (found.calls, found.messages) == (wanted[0].calls, wanted[0].messages)


def test_the_project_is_not_the_conversation():
    assert call(run(1, "tool")).conversation == "r-0"
    for key in ("thread_id", "session_id", "conversation_id"):
        root = run(0, "chain", extra={"metadata": {key: "c", "user_id": "u", "revision_id": "v"}})
        found = call(root, run(1, "tool"))
        assert (found.conversation, found.contact, found.prompt_version) == ("c", "u", "v")


@pytest.mark.parametrize(
    ("inputs", "args", "warnings"),
    [
        ({"n": "7"}, {"n": "7"}, ()),
        ({"input": '{"n": "7"}'}, {"n": "7"}, ()),
        (
            {"input": "{'n': '7', 'x': None, 'l': [1.5, True]}"},
            {"n": "7", "x": None, "l": [1.5, True]},
            ("args_python_repr",),
        ),
        ({"input": "where is order 7"}, {"input": "where is order 7"}, ()),
        ({"input": "[1]"}, {"input": "[1]"}, ()),
        ({"input": "{1, 2}"}, {"input": "{1, 2}"}, ()),
        ({"input": "{'a': {1}}"}, {"input": "{'a': {1}}"}, ()),
        ({"input": "{'a': 1e999}"}, {"input": "{'a': 1e999}"}, ()),
        ({"input": "__import__('os').abort()"}, {"input": "__import__('os').abort()"}, ()),
        ({"input": "(" * 5_000}, {"input": "(" * 5_000}, ()),
        ({"input": "{'a':" * 5_000}, {"input": "{'a':" * 5_000}, ()),
        ({"input": {"n": 1}}, {"input": {"n": 1}}, ()),
        ('{"n": "7"}', {"n": "7"}, ()),
        ("seven", "seven", ("args_not_json",)),
        (None, None, ("args_missing",)),
    ],
)
def test_arguments_written_as_python_are_read_and_never_run(inputs, args, warnings):
    found = call(run(1, "tool", inputs=inputs))
    assert (json.loads(found.args or "null"), found.warnings) == (args, warnings)


CONSTRUCTOR = {"lc": 1, "type": "constructor", "id": ["langchain", "ToolMessage"], "kwargs": ANSWER}


@pytest.mark.parametrize(
    ("outputs", "result", "call_id", "warnings"),
    [
        ({"output": ANSWER}, "sent", "call_1", ()),
        ({"output": CONSTRUCTOR}, "sent", "call_1", ()),
        ({"output": "content='it\\'s \"sent\"' name='get_order' tool_call_id='call_1'"}, 'it\'s "sent"', "call_1",
         ("result_python_repr",)),
        ({"output": "content=[1] tool_call_id='call_1'"}, "content=[1] tool_call_id='call_1'", None, ("no_call_id",)),
        ({"output": "content='sent'"}, "content='sent'", None, ("no_call_id",)),
        ({"output": {"n": 1}}, {"n": 1}, None, ("no_call_id",)),
        ({"found": 1}, {"found": 1}, None, ("no_call_id",)),
        ("plain", "plain", None, ("no_call_id",)),
        ({"output": None}, None, None, ("no_call_id", "no_result")),
        (None, None, None, ("no_call_id", "no_result")),
    ],
)  # fmt: skip
def test_results_come_as_tool_messages_or_plain(outputs, result, call_id, warnings):
    found = call(run(1, "tool", outputs=outputs))
    assert (json.loads(found.result or "null"), found.tool_call_id, found.warnings) == (result, call_id, warnings)


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"error": "TimeoutError('x')", "status": "error", "outputs": None}, "TimeoutError('x')"),
        ({"outputs": {"output": {**ANSWER, "content": "gone", "status": "error"}}}, "gone"),
        ({"outputs": {"output": "content='gone' tool_call_id='a' status='error'"}}, "gone"),
    ],
)
def test_errors_are_those_of_the_run_or_of_its_message(more, error):
    found = call(run(1, "tool", **more))
    assert (found.is_error, found.error) == (True, error)


def test_a_run_that_waits_has_no_verdict_and_the_finished_one_completes_it(tenant):
    pending = run(1, "tool", end_time=None, outputs=None, status="pending")
    found = call(pending)
    assert (found.is_error, found.warnings) == (None, ("no_call_id", "no_result", "unfinished"))
    failed = run(1, "tool", outputs=None, error="gone", status="error")
    assert take([pending], tenant).rejected == take([failed], tenant).rejected == []
    assert take([pending], tenant).unchanged == 1


def test_calls_that_no_run_answers_are_records_too():
    asked, ran = model(1, "call_1", "call_2"), run(2, "tool")
    (turn,) = turns([asked, ran])
    one, two = turn.calls
    assert (one.external_id, one.result, one.model, one.provider) == ("r-0:r-2", '"sent"', "m", "openai")
    assert (two.tool_call_id, two.index, two.message, two.warnings) == ("call_2", 1, "r-1", ("no_result",))


def test_messages_and_tools_of_the_model_are_kept():
    (turn,) = turns([model(1, "call_1"), run(2, "tool")])
    assert [m["role"] for m in json.loads(turn.messages or "")] == ["user", "assistant", "tool"]
    assert json.loads(turn.tools or "") == [{"type": "function", "function": {"name": "get_order"}}]


def test_a_broken_run_is_named_within_its_tree_and_loses_only_itself():
    tree = {**run(0, "chain"), "child_runs": [run(1, "tool"), {**run(2, "tool"), "name": None}]}
    (refused,) = refusals(lines(tree))
    assert (refused.line, refused.path, refused.code) == (1, "child_runs[1].name", "missing_field")
