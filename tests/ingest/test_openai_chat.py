import json
from typing import Any

import pytest

from quality.ingest.records import TurnRecord, merge_turns
from tests.ingest.helpers import lines, refusals, turns

USER = {"role": "user", "content": "Order 7?"}
SYSTEM = {"role": "system", "content": "Be kind."}


def asks(*calls: dict[str, Any], content: str | None = None) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


def call(call_id: str | None = "call_1", name: str = "get_order", arguments: Any = '{"n": "7"}') -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def answers(content: Any, call_id: str = "call_1") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def says(content: str) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def chat(*messages: dict[str, Any], **more: Any) -> TurnRecord:
    """The only turn of a chat."""
    (turn,) = turns({"messages": list(messages), **more})
    return turn


def pair(messages: list[dict[str, Any]], reply: dict[str, Any], number: int, **request: Any) -> dict[str, Any]:
    return {
        "request": {"model": "m", "messages": messages, **request},
        "response": {
            "id": f"chatcmpl-{number}",
            "created": 1_778_574_600 + number,
            "model": "m-2026",
            "choices": [{"index": 0, "message": reply}],
        },
    }


@pytest.mark.parametrize(
    ("arguments", "kept", "warnings"),
    [
        ('{"n": 1.10}', '{"n": 1.10}', ()),
        ("", "{}", ("args_empty",)),
        (" \n", "{}", ("args_empty",)),
        ('{}""', '"{}\\"\\""', ("args_not_json",)),
        ('{"n":1}{"n":1}', '"{\\"n\\":1}{\\"n\\":1}"', ("args_not_json",)),
        ('{"n": 1', '"{\\"n\\": 1"', ("args_not_json",)),
        ('{"n": NaN}', '"{\\"n\\": NaN}"', ("args_not_json",)),
        ('"{\\"n\\": 1}"', '{"n": 1}', ("args_double_encoded",)),
        ('"seven"', '"seven"', ("args_not_object",)),
        ("[1]", "[1]", ("args_not_object",)),
        ("null", "null", ("args_not_object",)),
        ({"n": 1}, '{"n": 1}', ()),
        (None, None, ("args_missing",)),
        ('{"n":1,"n":2}', '{"n":1,"n":2}', ()),
        ('{"q":"\ud800"}', '{"q":"\\ud800"}', ()),
        ('{"q":"\0"}', '"{\\"q\\":\\"\\u0000\\"}"', ("args_not_json",)),
    ],
)
def test_arguments_keep_their_spelling_and_say_what_is_odd(arguments, kept, warnings):
    (record,) = chat(USER, asks(call(arguments=arguments)), answers("ok")).calls
    assert (record.args, record.warnings) == (kept, warnings)


@pytest.mark.parametrize(
    ("content", "kept", "is_error", "error", "warnings"),
    [
        ('{"b": 1,"a":2}', '{"b": 1,"a":2}', False, None, ()),
        ("[1E5]", "[1E5]", False, None, ()),
        ("17", '"17"', False, None, ()),
        ("null", '"null"', False, None, ()),
        ("true", '"true"', False, None, ()),
        ("", '""', False, None, ()),
        ("{cut", '"{cut"', False, None, ()),
        ('{"error": "not_found"}', '{"error": "not_found"}', True, "not_found", ()),
        ('{"error": {"message": "gone"}}', '{"error": {"message": "gone"}}', True, "gone", ()),
        ('{"error": {"code": 4}}', '{"error": {"code": 4}}', True, '{"code":4}', ()),
        ('{"error": null}', '{"error": null}', False, None, ()),
        ('{"error": ""}', '{"error": ""}', False, None, ()),
        ("Error: no such order", '"Error: no such order"', False, None, ("error_text_suspected",)),
        ("Traceback (most", '"Traceback (most"', False, None, ("error_text_suspected",)),
        ([{"type": "text", "text": '{"a":'}, {"type": "text", "text": "1}"}], '{"a":1}', False, None, ()),
        (None, None, None, None, ("no_result",)),
    ],
)
def test_results_keep_their_spelling_and_errors_are_told_not_guessed(content, kept, is_error, error, warnings):
    (record,) = chat(USER, asks(call()), answers(content)).calls
    assert (record.result, record.is_error, record.error, record.warnings) == (kept, is_error, error, warnings)


def test_mixed_content_parts_stay_a_list():
    parts = [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "x"}}]
    (record,) = chat(USER, asks(call()), answers(parts)).calls
    assert json.loads(record.result) == parts


def test_answers_may_come_in_another_order():
    one, two = chat(
        USER, asks(call("a", "first"), call("b", "second")), answers("2", "b"), answers("1", "a"), says("Done.")
    ).calls
    assert [(one.result, one.index), (two.result, two.index)] == [('"1"', 0), ('"2"', 1)]


def test_an_id_used_in_each_reply_is_paired_with_the_newest():
    first, second, third = chat(
        USER, asks(call("call_0")), answers("1", "call_0"), asks(call("call_0"), call("call_0")),
        answers("2", "call_0"), answers("3", "call_0"),
    ).calls  # fmt: skip
    assert [first.result, second.result, third.result] == ['"1"', '"2"', '"3"']
    assert [(c.cycle, c.index) for c in (first, second, third)] == [(0, 0), (1, 0), (1, 1)]


def test_an_answer_never_reaches_back_into_another_turn():
    one, two = turns({"messages": [USER, asks(call()), USER, asks(call("call_2")), answers("late", "call_1")]})
    assert one.calls[0].warnings == ("no_result",)
    assert two.calls[0].warnings == ("no_result",)
    assert two.warnings == ("unmatched_result",)


def test_old_function_calls_are_paired_by_name_and_order():
    one, two = chat(
        USER,
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "1"},
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "2"},
        functions=[{"name": "f", "parameters": {"type": "object"}}],
    ).calls
    assert [(c.result, c.tool_call_id, c.warnings) for c in (one, two)] == [
        ('"1"', None, ("no_call_id",)),
        ('"2"', None, ("no_call_id",)),
    ]
    assert json.loads(one.tools) == [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]


def test_a_custom_tool_gets_its_free_text_as_input():
    custom = {"id": "call_1", "type": "custom", "custom": {"name": "run_sql", "input": "select 1"}}
    (record,) = chat(USER, asks(custom), answers("1")).calls
    assert (record.tool_name, record.args) == ("run_sql", '{"input":"select 1"}')


def test_a_reply_without_calls_counts_as_a_cycle():
    turn = chat(USER, says("Let me see."), asks(call()), answers("sent"), says("Sent."))
    assert [c.cycle for c in turn.calls] == [1]
    assert turn.num_cycles == 3


def test_null_tool_calls_and_null_content_are_no_calls():
    turn = chat(USER, {"role": "assistant", "content": "Hi.", "tool_calls": None})
    assert turn.calls == ()
    assert turn.outbound_message == "#1"


def test_a_turn_without_any_call_is_a_record_too():
    turn = chat(SYSTEM, USER, says("I cannot know."))
    assert (turn.calls, turn.num_cycles, turn.position) == ((), 1, 0)
    assert json.loads(turn.system) == "Be kind."
    assert [m["role"] for m in json.loads(turn.messages)] == ["user", "assistant"]


def test_two_user_messages_in_a_row_are_one_turn_and_an_open_question_is_none():
    (turn,) = turns({"messages": [USER, USER, says("Yes."), USER]})
    assert len(json.loads(turn.messages)) == 3


def test_messages_are_kept_as_they_were_spelled():
    raw = b'{"messages":[{"role":"user","content":"\\u00e9","n":1.10},{"content":"Hi","role":"assistant"}]}'
    (turn,) = turns(raw)
    assert turn.messages == '[{"role":"user","content":"\\u00e9","n":1.10},{"content":"Hi","role":"assistant"}]'


def test_what_the_request_tells_reaches_turn_and_calls():
    told = {"conversation_id": "c-1", "prompt_version": "v3"}
    turn = chat(USER, asks(call()), answers("sent"), metadata=told, user="u-1", model="m", tools=[{"type": "function"}])
    for record in (turn, *turn.calls):
        assert (record.conversation, record.contact, record.prompt_version, record.model) == ("c-1", "u-1", "v3", "m")
        assert record.tools == '[{"type": "function"}]'


def test_pairs_give_each_call_once_with_the_id_time_and_tools_of_its_own_request():
    first = [SYSTEM, USER]
    second = [*first, asks(call("a")), answers("sent", "a")]
    third = [*second, says("Sent."), {"role": "user", "content": "Thanks. Order 8?"}]
    log = [
        pair(first, asks(call("a")), 1, tools=[{"n": 1}]),
        pair(second, says("Sent."), 2, tools=[{"n": 2}]),
        pair(third, asks(call("b")), 3, tools=[{"n": 2}]),
    ]
    one, two = turns(log)
    (a,), (b,) = one.calls, two.calls
    assert (a.message, a.started_at, a.result) == ("chatcmpl-1", "2026-05-12T08:30:01.000Z", '"sent"')
    assert (a.model, a.tools, one.outbound_message) == ("m-2026", '[{"n": 1}]', "chatcmpl-2")
    assert (b.message, b.cycle, b.result, two.position) == ("chatcmpl-3", 0, None, 1)
    assert turns(lines(*log)) == [one, two]


def test_pairs_of_several_chats_may_alternate():
    def of(name: str, number: int) -> list[dict[str, Any]]:
        first = [SYSTEM, {"role": "user", "content": name}]
        second = [*first, asks(call(name)), answers(name, name)]
        return [pair(first, asks(call(name)), number), pair(second, says("Done."), number + 1)]

    one, two = of("x", 10), of("y", 20)
    mixed = turns([one[0], two[0], two[1], one[1]])
    apart = [*turns(one), *turns(two)]
    assert sorted(mixed, key=repr) == sorted(apart, key=repr)
    assert [c.result for turn in mixed for c in turn.calls] in (['"x"', '"y"'], ['"y"', '"x"'])


def test_chats_that_begin_alike_are_told_apart_by_their_replies():
    def of(number: int) -> list[dict[str, Any]]:
        name = f"call_{number}"
        reply = {**asks(call(name)), "refusal": None}
        second = [SYSTEM, USER, asks(call(name)), answers(name, name)]
        return [pair([SYSTEM, USER], reply, number), pair(second, says("Sent."), number + 1)]

    one, two = of(10), of(20)
    mixed = turns([one[0], two[0], one[1], two[1]])
    assert sorted(mixed, key=repr) == sorted([*turns(one), *turns(two)], key=repr)


def test_the_first_half_of_a_log_merges_into_the_whole():
    first = [USER]
    second = [USER, asks(call("a")), answers("sent", "a")]
    log = [pair(first, asks(call("a")), 1), pair(second, says("Sent."), 2)]
    (half,), (whole,) = turns(log[:1]), turns(log)
    assert half.external_id == whole.external_id
    assert half.calls[0].external_id == whole.calls[0].external_id
    assert merge_turns(half, whole).digest() == whole.digest() == merge_turns(whole, half).digest()


def test_a_request_answered_twice_is_two_turns():
    one, two = turns([pair([USER], asks(call("a")), 1), pair([USER], asks(call("b")), 2)])
    assert one.external_id != two.external_id
    assert {c.tool_call_id for turn in (one, two) for c in turn.calls} == {"a", "b"}


def test_the_same_pair_twice_is_one():
    log = pair([USER], asks(call("a")), 1)
    assert turns([log, log]) == turns([log])


def test_only_choice_0_is_read():
    log = pair([USER], says("Yes."), 1)
    log["response"]["choices"].insert(0, {"index": 1, "message": asks(call())})
    (turn,) = turns([log])
    assert turn.calls == ()


def test_a_failed_response_leaves_the_history():
    log = pair([USER, asks(call()), answers("sent")], says("never"), 1)
    log["response"] = {"error": {"message": "overloaded"}}
    (turn,) = turns([log])
    assert [(c.message, c.result) for c in turn.calls] == [("#1", '"sent"')]


@pytest.mark.parametrize(
    ("item", "code", "path"),
    [
        ({"messages": [USER, {"content": "?"}]}, "wrong_type", "messages[1]"),
        ({"messages": [USER, asks({"id": "a"})]}, "missing_field", "messages[1].tool_calls[0].function"),
        ({"messages": [USER, asks(call(name=""))]}, "missing_field", "messages[1].tool_calls[0].function.name"),
        ({"messages": [USER, {"role": "assistant", "tool_calls": {}}]}, "wrong_type", "messages[1].tool_calls"),
        ({"messages": [USER, says("a")], "tools": [1]}, "wrong_type", "tools"),
        ({"messages": [USER], "metadata": {"conversation_id": "x" * 501}}, "too_long", "metadata.conversation_id"),
        ({"prompt": "?"}, "missing_field", "messages"),
        (pair([USER, {"role": 1}], says("a"), 1), "wrong_type", "request.messages[1]"),
        (pair([], says("a"), 1), "missing_field", "request.messages"),
    ],
)
def test_a_broken_chat_is_refused_by_field_and_loses_only_itself(item, code, path):
    good = {"messages": [USER, says("Yes.")]}
    (refused,) = refusals(lines(good, item, good), "openai_chat")
    assert (refused.index, refused.line, refused.code, refused.path) == (1, 2, code, path)


def test_many_open_chats_are_let_out_and_still_told_once(monkeypatch):
    monkeypatch.setattr("quality.ingest.logs.MAX_HELD_BYTES", 2_000)
    starts = [pair([SYSTEM, {"role": "user", "content": str(n)}], asks(call("a")), n) for n in range(30)]
    ends = [
        pair([*start["request"]["messages"], asks(call("a")), answers("sent", "a")], says("Sent."), 100 + n)
        for n, start in enumerate(starts)
    ]
    found = turns(lines(*starts, *ends))
    assert len({turn.external_id for turn in found}) == 30
    longest = {turn.external_id: turn for turn in found}
    assert {turn.calls[0].result for turn in longest.values()} == {'"sent"'}
    assert len({c.external_id for turn in found for c in turn.calls}) == 30
