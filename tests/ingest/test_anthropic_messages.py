import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quality.ingest.records import TurnRecord
from quality.review.offered import offered_tools
from tests.ingest import promises
from tests.ingest.helpers import lines, outcomes, refusals, state, take, turns

FORMAT = "anthropic_messages"
USER = {"role": "user", "content": "Order 7?"}
TOOLS = [{"name": "get_order", "description": "Looks.", "input_schema": {"type": "object", "properties": {"n": {}}}}]


def use(call_id: str = "toolu_1", name: str = "get_order", **more: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": {"n": "7"}, **more}


def result(content: Any = ..., call_id: str = "toolu_1", **more: Any) -> dict[str, Any]:
    told = {} if content is ... else {"content": content}
    return {"type": "tool_result", "tool_use_id": call_id, **told, **more}


def asks(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": [*blocks]}


def gives(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": [*blocks]}


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def chat(*messages: dict[str, Any], **more: Any) -> TurnRecord:
    (turn,) = turns({"messages": [*messages], **more}, FORMAT)
    return turn


def pair(number: int, messages: list[Any], *blocks: Any, **request: Any) -> dict[str, Any]:
    answer = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "m-2026", "content": [*blocks]}
    return {"request": {"model": "m", "max_tokens": 9, "messages": messages, **request}, "response": answer}


CACHED = {"cache_control": {"type": "ephemeral"}}
ASKED = asks(text("Let me see."), use())
TOLD = {"system": "Be kind.", "tools": TOOLS, "metadata": {"user_id": "u"}}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s"}
ANSWERED = [USER, ASKED, gives(result("sent"))]
LOG = [
    pair(1, [gives(text("Order 7?", **CACHED))], THOUGHT, *ASKED["content"], **TOLD),
    pair(2, [USER, ASKED, gives(result("sent", **CACHED))], text("Sent."), **TOLD),
    pair(3, [*ANSWERED, asks(text("Sent.")), gives(text("Order 8?", **CACHED))], use("toolu_2"), **TOLD),
]


def test_pairs_give_each_call_once_though_clients_move_what_is_no_content():
    one, two = turns(LOG)
    assert [(c.message, c.cycle, c.tool_call_id, c.result) for c in (*one.calls, *two.calls)] == [
        ("msg_1", 0, "toolu_1", '"sent"'),
        ("msg_3", 0, "toolu_2", None),
    ]
    assert (one.outbound_message, one.system, two.position) == ("msg_2", '"Be kind."', 1)
    assert one.conversation == two.conversation
    assert [tool.parameters for tool in offered_tools(one.calls[0].tools)] == [TOOLS[0]["input_schema"]]
    assert turns(lines(*LOG)) == [one, two]


def test_chats_that_begin_alike_are_told_apart_by_their_replies():
    other = json.loads(json.dumps(LOG).replace("msg_", "msg_x").replace("toolu_", "toolu_x"))
    mixed = [each for both in zip(LOG, other, strict=True) for each in both]
    assert sorted(turns(mixed), key=repr) == sorted([*turns(LOG), *turns(other)], key=repr)


def test_messages_are_kept_as_a_chat():
    turn = chat(USER, ASKED, gives(result('{"a": 1}')), asks(text("Sent.")))
    user, asked, answer, reply = json.loads(turn.messages)
    assert (user, reply) == (USER, {"role": "assistant", "content": "Sent."})
    assert asked["content"] == "Let me see."
    assert asked["tool_calls"] == [
        {"id": "toolu_1", "type": "function", "function": {"name": "get_order", "arguments": '{"n": "7"}'}}
    ]
    assert answer == {"role": "tool", "tool_call_id": "toolu_1", "content": '{"a": 1}'}


@pytest.mark.parametrize(
    ("given", "kept", "is_error", "error", "warnings"),
    [
        (result("sent"), '"sent"', False, None, ()),
        (result(), '""', False, None, ()),
        (result(is_error=True), '""', True, None, ()),
        (result("gone", is_error=True), '"gone"', True, "gone", ()),
        (result('{"error": {"message": "gone"}}', is_error=True), '{"error": {"message": "gone"}}', True, "gone", ()),
        (result('{"error": "gone"}'), '{"error": "gone"}', True, "gone", ()),
        (result('{"error": "gone"}', is_error=False), '{"error": "gone"}', False, None, ()),
        (result("Error: gone"), '"Error: gone"', False, None, ("error_text_suspected",)),
        (result([text('{"a":'), text("1}")]), '{"a":1}', False, None, ()),
        (result([]), '""', False, None, ()),
    ],
)
def test_results_keep_their_spelling_and_their_flag(given, kept, is_error, error, warnings):
    (record,) = chat(USER, asks(use()), gives(given)).calls
    assert (record.result, record.is_error, record.error, record.warnings) == (kept, is_error, error, warnings)


def test_results_with_images_stay_a_list():
    blocks = [text("a"), {"type": "image", "source": {"type": "url", "url": "x"}}]
    (record,) = chat(USER, asks(use()), gives(result(blocks))).calls
    assert json.loads(record.result) == blocks


def test_results_alone_begin_no_turn_and_words_beside_them_do():
    one, two = turns({"messages": [USER, asks(use("a")), gives(result("1", "a")), asks(use("b")),
                                   gives(result("2", "b"), text("thanks")), asks(text("Welcome."))]})  # fmt: skip
    assert [(c.message, c.cycle, c.result) for c in one.calls] == [("#1", 0, '"1"'), ("#3", 1, '"2"')]
    assert (two.calls, two.message) == ((), "#4")
    assert json.loads(two.messages)[0] == {"role": "user", "content": "thanks"}


def test_ids_pair_results_in_any_order_and_however_late():
    one, two = turns({"messages": [USER, asks(use("a"), use("b")), gives(result("2", "b")), gives(text("And?")),
                                   gives(result("1", "a")), asks(text("Done."))]})  # fmt: skip
    assert [c.result for c in one.calls] == ['"1"', '"2"']
    assert two.warnings == ()


def test_a_result_of_no_call_is_told():
    assert chat(USER, asks(use()), gives(result("1", "other"))).warnings == ("unmatched_result",)


@pytest.mark.parametrize(
    ("kind", "answered", "is_error", "error"),
    [
        (
            "server_tool_use",
            {"type": "web_search_tool_result", "content": [{"type": "web_search_result"}]},
            False,
            None,
        ),
        (
            "server_tool_use",
            {"type": "web_search_tool_result", "content": {"error_code": "max_uses"}},
            True,
            "max_uses",
        ),
        ("mcp_tool_use", {"type": "mcp_tool_result", "is_error": True, "content": [text("gone")]}, True, "gone"),
    ],
)
def test_what_ran_at_the_provider_has_its_result_in_the_same_message(kind, answered, is_error, error):
    turn = chat(USER, asks(use("s", type=kind), {**answered, "tool_use_id": "s"}, text("Open.")))
    (record,) = turn.calls
    assert (record.is_error, record.error, record.warnings) == (is_error, error, ("provider_executed",))
    assert (turn.outbound_message, turn.warnings) == ("#1", ())


def test_arguments_kept_as_text_are_read_as_text():
    (record,) = chat(USER, asks(use(input='{"n": "7"}'))).calls
    assert record.args == '{"n": "7"}'


def test_the_events_of_a_stream_make_the_message():
    message = {"id": "msg_1", "role": "assistant", "model": "m-2026", "content": []}
    events = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Let me "}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "see."}},
        {"type": "content_block_start", "index": 1, "content_block": use(input={})},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": '{"n": 1'}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": ".10}"}},
        {"type": "message_stop"},
    ]
    (turn,) = turns([{"request": {"messages": [USER]}, "response": events}])
    assert [(c.message, c.model, c.args) for c in turn.calls] == [("msg_1", "m-2026", '{"n": 1.10}')]
    assert json.loads(turn.messages)[1]["content"] == "Let me see."


def test_what_the_request_tells_reaches_turn_and_calls():
    told = {"conversation_id": "c-1", "prompt_version": "v3", "user_id": "u-1"}
    turn = chat(USER, asks(use()), metadata=told, model="m", tools=TOOLS, system=[text("Be kind."), text("Be brief.")])
    for record in (turn, *turn.calls):
        assert (record.conversation, record.contact, record.prompt_version, record.model) == ("c-1", "u-1", "v3", "m")
        assert (record.provider, json.loads(record.tools)) == ("anthropic", TOOLS)
    assert json.loads(turn.system) == "Be kind.Be brief."


def test_a_file_may_begin_with_a_chat_that_is_the_same_in_other_formats():
    plain = {"messages": [USER, {"role": "assistant", "content": "Yes."}]}
    data = lines(plain, {"messages": [USER, asks(use()), gives(result("1"))]}, plain)
    assert [c.result for item in outcomes(data) for turn in item.turns for c in turn.calls] == ['"1"']
    assert [turn.source for item in outcomes(data) for turn in item.turns] == ["openai_chat", FORMAT, FORMAT]


@pytest.mark.parametrize(
    ("item", "code", "path"),
    [
        ({"messages": [USER, {"content": "?"}]}, "wrong_type", "messages[1]"),
        ({"messages": [USER, asks(1)]}, "wrong_type", "messages[1].content[0]"),
        ({"messages": [USER, asks(use(name=""))]}, "missing_field", "messages[1].content[0].name"),
        ({"messages": [USER, asks(text("a"))], "tools": {}}, "wrong_type", "tools"),
        ({"messages": [USER]}, "empty", "messages"),
        (pair(1, [], text("a")), "missing_field", "request.messages"),
        (pair(1, [USER], text("a"), metadata={"user_id": [1]}), "wrong_type", "request.metadata.user_id"),
    ],
)
def test_a_broken_item_is_refused_by_field_and_loses_only_itself(item, code, path):
    good = {"messages": [USER, asks(text("Yes."))]}
    (refused,) = refusals(lines(good, item, good), FORMAT)
    assert (refused.index, refused.line, refused.code, refused.path) == (1, 2, code, path)


def test_the_same_file_twice_changes_nothing(tenant):
    stored = promises.changes_nothing_when_sent_again(json.dumps(LOG).encode(), tenant)
    assert (len(stored["turns"]), len(stored["calls"])) == (2, 2)


@pytest.mark.parametrize("kept", [1, 2])
def test_half_a_file_then_the_whole_is_the_whole(tenant, other_tenant, kept):
    data = json.dumps(LOG, indent=1).encode()
    cut = data.index(b'"request"', data.index(f'"msg_{kept}"'.encode())) + 30
    fault = promises.completes_after_a_cut(data, cut, tenant, other_tenant)
    assert (fault.code, fault.line) == ("truncated", data[:cut].count(b"\n") + 1)


def test_half_a_file_of_lines_tells_what_is_cut_by_line_and_field(tenant, other_tenant):
    one, two = ({"id": name, "messages": [USER, asks(use(name)), gives(result("1", name))]} for name in ("a", "b"))
    data = lines(one, two)
    fault = promises.completes_after_a_cut(data, data.index(b"Order 7?", data.index(b"\n")) + 4, tenant, other_tenant)
    assert (fault.code, fault.line, fault.path) == ("malformed_json", 2, "messages[0].content")


def test_two_tenants_hold_the_same_file_apart(tenant, other_tenant):
    promises.stays_with_its_tenant(json.dumps(LOG).encode(), tenant, other_tenant)


def test_a_log_that_goes_on_grows_its_turns(tenant, other_tenant):
    for end in (1, 2, 3):
        assert not take(json.dumps(LOG[:end]).encode(), tenant).rejected
    take(json.dumps(LOG).encode(), other_tenant)
    assert [row["result"] for row in state(tenant)["calls"]] == [row["result"] for row in state(other_tenant)["calls"]]


@given(st.integers(0, 2**32))
def test_the_order_of_keys_says_nothing(seed):
    assert promises.records(turns(promises.shuffled(LOG, random.Random(seed)))) == promises.records(turns(LOG))


@pytest.mark.parametrize("format_name", [FORMAT, "auto"])
@pytest.mark.parametrize(
    "good", [LOG[1:2], {"messages": [USER, asks(use()), gives(result([text("1")]))], "system": "s"}]
)
def test_nothing_that_comes_breaks_it(good, format_name):
    assert promises.refuses_or_reads_anything(good, format_name) > 50
