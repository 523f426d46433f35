"""Joining the spans of one trace; what each format reads into them is in its own tests."""

import itertools
import json
import random
import time
from dataclasses import replace
from typing import Any

import pytest

from quality.ingest.jsontext import dump
from quality.ingest.messages import Call, Thread
from quality.ingest.payloads import NO_ARGS, Args, Result
from quality.ingest.records import MAX_PLACE, RecordError, TurnRecord, anonymous_turn_id, merge_calls
from quality.ingest.span_records import records_of_trace
from quality.ingest.spans import Model, Span, Tool

SECOND = 1_000_000_000
AT = 1_777_801_500 * SECOND


def args(n: int) -> Args:
    return Args(f'{{"n":{n}}}', ())


def says(text: str) -> Result:
    return Result(f'"{text}"', False, None, ())


def asks(call_id: str | None, *, index: int = 0, given: Args | None = None) -> Call:
    return Call(index, "find", call_id, given or args(1))


def model(span_id: str, second: float, *calls: Call, **more: Any) -> Span:
    fields = {key: more.pop(key) for key in ("parent", "conversation", "contact", "prompt_version") if key in more}
    told = Model(f"reply-{span_id}", model=f"m-{span_id}", provider="openai", calls=calls, **more)
    return span(span_id, second, model=told, **fields)


def tool(span_id: str, second: float, call_id: str | None = None, **more: Any) -> Span:
    fields = {key: more.pop(key) for key in ("parent", "conversation", "contact", "prompt_version") if key in more}
    told = {"name": "find", "args": args(1), "result": says("ok"), "is_error": False} | more
    return span(span_id, second, tool=Tool(call_id=call_id, **told), **fields)


def span(span_id: str, second: float, **more: Any) -> Span:
    started = AT + int(second * SECOND)
    fields = {"started": started, "ended": started + SECOND // 10} | more
    return Span("test", "t-1", span_id, **fields)


def turn(*spans: Span) -> TurnRecord:
    (found,) = records_of_trace(spans)
    return found


def places(*spans: Span) -> dict[str, tuple[str | None, int, int]]:
    """Message, cycle and index of each tool span, by its id."""
    return {c.external_id.split(":")[1]: (c.message, c.cycle, c.index) for c in turn(*spans).calls}


def test_a_call_has_the_place_that_the_model_gave_it_not_the_one_it_ran_in():
    first, second = asks("a", index=0), asks("b", index=1)
    assert places(model("m1", 0, first, second), tool("x", 1, "b"), tool("y", 2, "a"), model("m2", 3)) == {
        "x": ("reply-m1", 0, 1),
        "y": ("reply-m1", 0, 0),
    }


def test_an_id_that_every_reply_uses_again_goes_to_the_newest_reply_before_the_tool():
    spans = [s for n in range(3) for s in (model(f"m{n}", 2 * n, asks("call_0")), tool(f"x{n}", 2 * n + 1, "call_0"))]
    assert places(*spans) == {f"x{n}": (f"reply-m{n}", n, 0) for n in range(3)}


def test_one_id_twice_in_a_reply_is_used_in_order():
    reply = model("m", 0, asks("a", index=0), asks("a", index=1))
    assert places(reply, tool("x", 1, "a"), tool("y", 2, "a")) == {"x": ("reply-m", 0, 0), "y": ("reply-m", 0, 1)}


def test_a_tool_whose_clock_is_behind_still_finds_its_id():
    assert places(model("m", 5, asks("a")), tool("x", 1, "a")) == {"x": ("reply-m", 0, 0)}


def test_without_ids_arguments_decide_and_then_the_name():
    reply = model(
        "m", 0, asks(None, index=0, given=args(1)), asks(None, index=1, given=Args('{"a": 1, "n":2}', ()))
    )  # fmt: skip
    by_arguments = tool("x", 1, args=Args('{"n":2,"a":1}', ()))
    by_name = tool("y", 2, args=args(9))
    assert places(reply, by_arguments, by_name) == {"x": ("reply-m", 0, 1), "y": ("reply-m", 0, 0)}


def test_a_tool_without_id_takes_the_one_the_model_gave():
    (call,) = turn(model("m", 0, asks("call_1")), tool("x", 1)).calls
    assert (call.tool_call_id, call.warnings) == ("call_1", ())
    (call,) = turn(tool("x", 1)).calls
    assert (call.tool_call_id, call.warnings) == (None, ("no_call_id",))


def test_another_id_is_another_call():
    found = places(model("m", 0, asks("a")), tool("x", 1, "a"), tool("y", 2, "b"))
    assert found == {"x": ("reply-m", 0, 0), "y": ("reply-m", 0, 1)}


def test_a_model_above_the_tool_counts_before_one_that_started_last():
    spans = (model("m1", 0), model("m2", 1), span("wrap", 2, parent="m1"), tool("x", 3, "?", parent="wrap"))
    assert places(*spans) == {"x": ("reply-m1", 0, 0)}
    assert places(*spans[:3], tool("x", 3, "?")) == {"x": ("reply-m2", 1, 0)}


def test_unasked_calls_are_numbered_by_their_start():
    spans = [model("m", 0), tool("z", 1, "p"), tool("a", 2, "q"), tool("k", 3, "r")]
    assert [place[2] for place in places(*spans).values()] == [0, 1, 2]
    assert list(places(*spans)) == ["z", "a", "k"]


def test_without_a_model_span_the_cycle_is_0():
    assert places(tool("x", 1, "a"), tool("y", 2, "b")) == {"x": (None, 0, 0), "y": (None, 0, 1)}


def test_a_retry_under_one_id_stays_a_record_of_its_own():
    first, again = tool("x", 1, "a", result=None, is_error=True, error="timed out"), tool("y", 2, "a")
    one, two = turn(model("m", 0, asks("a")), first, again, model("m2", 3)).calls
    assert [(c.tool_call_id, c.message, c.cycle, c.index) for c in (one, two)] == [
        ("a", "reply-m", 0, 0),
        ("a", "reply-m", 0, 1),
    ]
    assert (one.is_error, two.is_error) == (True, False)


def test_a_span_exported_twice_is_one_and_the_finished_one_stands():
    finished = tool("x", 1)
    unfinished = replace(finished, ended=None)
    for order in itertools.permutations([unfinished, finished, finished]):
        (call,) = turn(*order).calls
        assert (call.duration_ms, call.warnings) == (100, ("no_call_id",))


def test_any_order_gives_the_same():
    spans = [span("root", 0, conversation="c"), model("m1", 1, asks("a"), asks("b", index=1)), tool("x", 2, "b")]
    spans += [tool("y", 2, "a"), model("m2", 3, asks(None)), tool("z", 4), tool("w", 4, parent="x")]
    expected = records_of_trace(spans)
    for seed in range(20):
        random.Random(seed).shuffle(spans)
        assert records_of_trace(spans) == expected


def test_facts_come_from_the_span_then_from_above_then_from_anywhere():
    root = span("root", 0, conversation="above", prompt_version="v-root")
    own = tool("x", 2, "a", parent="root", conversation="own")
    inherits = tool("y", 3, "b", parent="mid")
    stray = tool("z", 4, "c", parent="gone")
    spans = [root, span("mid", 1, parent="root", contact="u-1"), own, inherits, stray]
    x, y, z = turn(*spans).calls
    assert [c.conversation for c in (x, y, z)] == ["own", "above", "above"]
    assert {c.contact for c in (x, y, z)} == {"u-1"}
    assert {c.prompt_version for c in (x, y, z)} == {"v-root"}


def test_the_prompt_of_one_model_is_not_that_of_another():
    spans = [model("m1", 0, asks("a"), prompt_version="p@1"), tool("x", 1, "a"), model("m2", 2, asks("b"))]
    x, y = turn(*spans, tool("y", 3, "b")).calls
    assert (x.prompt_version, y.prompt_version) == ("p@1", None)


def test_a_session_stands_for_the_conversation_only_where_none_is_named():
    named = span("late", 9, conversation="c-1")
    session = span("x", 1, tool=tool("x", 1).tool, session="s-1")
    assert turn(session, named).calls[0].conversation == turn(session, named).conversation == "c-1"
    assert turn(session).calls[0].conversation == "s-1"
    assert turn(tool("x", 1)).conversation == "t-1"


def test_parents_may_run_in_circles():
    spans = [tool("x", 1, "a", parent="y"), tool("y", 2, "b", parent="x"), tool("z", 3, "c", parent="z")]
    assert len(turn(*spans).calls) == 3


@pytest.mark.parametrize(
    ("started", "ended", "duration", "warning"),
    [
        (AT, AT + 1_499_999, 1, None),
        (AT, AT + 1_500_001, 2, None),
        (AT, AT, 0, None),
        (AT, None, None, "unfinished"),
        (AT, 0, None, "unfinished"),
        (None, AT, None, "unfinished"),
        (AT, AT - 1, None, "clock_skew"),
        (AT, AT + 2**62, None, "clock_skew"),
    ],
)
def test_durations_are_rounded_or_said_to_be_odd(started, ended, duration, warning):
    (call,) = turn(span("x", 0, started=started, ended=ended, tool=tool("x", 0, "a").tool)).calls
    assert call.duration_ms == duration
    assert call.warnings == ((warning,) if warning else ())


@pytest.mark.parametrize(
    ("told", "is_error", "error", "warnings"),
    [
        ({"result": None, "is_error": True, "error": "gone"}, True, "gone", ()),
        ({"result": None, "is_error": False}, False, None, ("no_result",)),
        ({"result": None, "is_error": None}, None, None, ("no_result",)),
        ({"result": Result("{}", True, "gone", ()), "is_error": None}, True, "gone", ()),
        ({"result": Result("{}", True, "gone", ()), "is_error": False}, False, None, ()),
        ({"result": Result("{}", True, "gone", ()), "is_error": True}, True, "gone", ()),
        ({"result": Result('"Error"', False, None, ("error_text_suspected",))}, False, None, ("error_text_suspected",)),
    ],
)
def test_the_flag_decides_before_the_result_does(told, is_error, error, warnings):
    (call,) = turn(tool("x", 0, "a", **told)).calls
    assert (call.is_error, call.error, call.warnings) == (is_error, error, warnings)


def test_what_the_tool_span_does_not_hold_is_taken_from_the_models():
    bare = tool("x", 1, args=NO_ARGS, result=None)
    (call,) = turn(model("m", 0, asks("a")), bare, model("m2", 2, answers=(("a", says("sent")),))).calls
    assert (call.args, call.result, call.warnings) == ('{"n":1}', '"sent"', ())


def test_without_tool_spans_calls_come_from_replies_and_results_from_later_requests():
    history = (("a", says("first")), ("b", says("second")))
    spans = [
        model("m1", 0, asks("a")),
        model("m2", 1, asks("b"), asks("c", index=1), answers=history[:1]),
        model("m3", 2, answers=history),
    ]
    a, b, c = turn(*spans).calls
    assert [(x.message, x.cycle, x.index, x.result) for x in (a, b, c)] == [
        ("reply-m1", 0, 0, '"first"'),
        ("reply-m2", 1, 0, '"second"'),
        ("reply-m2", 1, 1, None),
    ]
    assert (c.is_error, c.warnings, c.started_at, c.duration_ms) == (None, ("no_result",), None, None)


def test_results_under_one_id_go_to_the_reply_before_them():
    spans = [model("m0", 0, asks("call_0"))]
    for n in range(1, 4):
        told = tuple(("call_0", says(str(k))) for k in range(n))
        spans.append(model(f"m{n}", n, asks("call_0"), answers=told))
    assert [c.result for c in turn(*spans).calls] == ['"0"', '"1"', '"2"', None]


def test_calls_that_never_ran_are_records_only_where_the_source_tells_them():
    ran = tool("x", 1, "a")
    assert len(turn(model("m", 0, asks("a"), asks("b", index=1)), ran).calls) == 1
    _, b = turn(model("m", 0, asks("a"), asks("b", index=1), tells_unexecuted=True), ran).calls
    assert (b.tool_call_id, b.index, b.warnings) == ("b", 1, ("no_result",))


def thread(*given: str, reply: str | None = "sent", **more: Any) -> Thread:
    """A thread whose messages are one word each; those of the model begin with `m`."""
    told = [dump({"role": "assistant" if word.startswith("m") else "user", "content": word}) for word in given]
    answer = dump({"role": "assistant", "content": reply}) if reply else None
    replies = sum(word.startswith("m") for word in given) + bool(reply)
    return Thread(tuple(told), answer, tuple(told[:1]), replies, **{"system": None, "position": 0} | more)


def said(*spans: Span) -> list[tuple[str, Any]]:
    return [(message["role"], message["content"]) for message in json.loads(turn(*spans).messages or "[]")]


def test_the_last_request_holds_the_turn():
    first = thread("order?", reply="m looks")
    last = thread("order?", "m looks", "please", reply="m sent", system='"Be kind."', position=2)
    spans = [model("m1", 0, asks("a"), thread=first), tool("x", 1, "a"), model("m2", 2, thread=last)]
    assert [content for _, content in said(*spans)] == ["order?", "m looks", "please", "m sent"]
    assert (turn(*spans).system, turn(*spans).position) == ('"Be kind."', 2)


def test_what_no_request_holds_as_a_whole_is_put_together_so_that_each_reply_is_a_cycle():
    spans = [
        model("m1", 0, asks("a"), thread=thread("order?", reply="m looks")),
        tool("x", 1, "a", result=Result('{"n":1}', False, None, ())),
        model("m2", 2, thread=thread("summarise", reply=None)),
        model("m3", 3, asks("b"), thread=thread("unrelated", reply="m done")),
        tool("y", 4, "b"),
    ]
    assert said(*spans) == [
        ("user", "order?"), ("assistant", "m looks"), ("tool", '{"n":1}'), ("assistant", None), ("assistant", "m done"),
        ("tool", "ok"),
    ]  # fmt: skip


def test_the_turn_tells_what_the_last_reply_knows():
    spans = [model("m1", 0, asks("a"), tools="[1]"), tool("x", 1, "a"), model("m2", 2)]
    found = turn(*spans)
    assert found.messages is None
    assert (found.outbound_message, found.model, found.num_cycles, found.tools) == ("reply-m2", "m-m2", 2, "[1]")
    assert (found.started_at, found.duration_ms) == ("2026-05-03T09:45:00.000Z", 2_100)
    assert found.calls[0].tools == "[1]"


def test_a_trace_without_tool_or_model_is_nothing_and_a_reply_without_call_is_a_turn():
    assert records_of_trace([span("http", 0)]) == records_of_trace([]) == []
    assert records_of_trace([model("m", 0)]) == []
    plain = turn(model("m", 0, thread=thread("?")))
    assert (plain.calls, plain.outbound_message) == ((), "reply-m")


def test_a_part_of_a_trace_tells_only_what_no_further_span_can_change():
    spans = [model("m2", 2, asks("b", index=1)), tool("x", 3, "b", parent="m2"), tool("y", 4, "?", parent="m2")]
    first, second = records_of_trace(spans, whole=False)
    (x,), (y,) = first.calls, second.calls
    assert (x.message, x.cycle, x.index, x.conversation) == ("reply-m2", 0, 1, None)
    assert (y.message, y.cycle, y.index, y.conversation) == (None, 0, 0, None)
    assert first.external_id == anonymous_turn_id("test", "t-1:x")
    assert records_of_trace([model("m", 0, asks("a"))], whole=False) == []


def test_any_part_of_a_trace_merges_into_the_whole():
    spans = [
        span("root", 0, conversation="c", contact="u", prompt_version="v"),
        model("m1", 1, asks("a"), asks("b", index=1), parent="root", tools='[{"n":1}]'),
        tool("y", 2, "b", parent="root", args=NO_ARGS),
        tool("x", 3, parent="root", result=None),
        model("m2", 4, asks("d"), parent="root", answers=(("a", says("sent")), ("b", says("ok")))),
        tool("z", 5, "d", parent="m2", is_error=True, error="gone", result=None),
    ]
    whole = {call.external_id: call for call in turn(*spans).calls}
    for size in range(len(spans)):
        for part in itertools.combinations(spans, size):
            for (call,) in (found.calls for found in records_of_trace(part, whole=False)):
                complete = whole[call.external_id]
                assert merge_calls(call, complete) == merge_calls(complete, call) == complete


def test_more_than_can_be_counted_is_refused():
    with pytest.raises(RecordError, match="model spans"):
        records_of_trace([model(f"m{n}", n) for n in range(MAX_PLACE + 2)])
    with pytest.raises(RecordError, match="calls of one reply"):
        records_of_trace([tool(f"x{n}", n) for n in range(MAX_PLACE + 2)])


LARGE = {
    "each reply one call": lambda n: [
        s for i in range(n // 2) for s in (model(f"m{i}", 2 * i, asks(f"c{i}")), tool(f"x{i}", 2 * i + 1, f"c{i}"))
    ],
    "one id everywhere": lambda n: [
        s
        for i in range(n // 2)
        for s in (model(f"m{i}", 2 * i, asks("c"), answers=(("c", says("1")),)), tool(f"x{i}", 2 * i + 1, "c"))
    ],
    "one reply asks for all": lambda n: [
        model("m", 0, *(asks("c", index=i) for i in range(n))),
        model("m2", n + 1, answers=tuple(("c", says("1")) for _ in range(n))),
        *(tool(f"x{i}", i + 1, "c", result=None) for i in range(n)),
    ],
    "no ids": lambda n: [
        s for i in range(n // 2) for s in (model(f"m{i}", 2 * i, asks(None)), tool(f"x{i}", 2 * i + 1))
    ],
    "tools first": lambda n: [
        *(tool(f"x{i}", i, f"c{i}") for i in range(n // 2)),
        *(model(f"m{i}", n + i, asks(f"c{i}")) for i in range(n // 2)),
    ],
    "one below the other": lambda n: [tool(f"x{i:05}", i, parent=f"x{i - 1:05}") for i in range(n)],
}


@pytest.mark.parametrize("shape", LARGE)
def test_ten_thousand_spans_in_reverse_take_about_ten_times_what_a_thousand_take(shape):
    def cost(count: int) -> float:
        spans = LARGE[shape](count)[::-1]
        begun = time.process_time()
        (found,) = records_of_trace(spans)
        assert len(found.calls) in (count, count // 2)
        return time.process_time() - begun

    small = min(cost(1_000) for _ in range(3))
    assert min(cost(10_000) for _ in range(2)) < 40 * small  # 100 would be quadratic
