import random
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quality.ingest.items import Parsed
from quality.ingest.records import CallRecord, TurnRecord
from quality.ingest.store import MAX_CALLS_OF_TURN, prepare, store
from quality.models import CallState, Feedback, Review, ToolCall, Toolset, Turn
from quality.review.items import item_of_call
from quality.review.labelling import record_label
from tenants.models import Tenant
from tenants.scope import tenant_scope
from tests.corpus import corpus
from tests.factories import TenantFactory
from tests.ingest.helpers import NEUTRAL, lines, outcomes, state, take

TOOLS = [{"type": "function", "function": {"name": "get_order"}}]


def record(name: str, **fields) -> dict:
    return {**NEUTRAL, "external_id": name, **fields}


def only_call(tenant: Tenant) -> ToolCall:
    with tenant_scope(tenant):
        return ToolCall.objects.select_related("turn", "toolset").get()


def test_a_record_becomes_a_turn_with_its_call(tenant):
    report = take([record("run-1", tools=TOOLS, started_at="2026-05-12T08:30:00.123Z", conversation="c")], tenant)
    assert (report.accepted, report.num_turns, report.num_calls) == (1, 1, 1)
    call = only_call(tenant)
    assert (call.args, call.result, call.state, call.is_error) == ('{"n": "7"}', '{"status": "sent"}', "result", False)
    assert call.started_at.isoformat() == "2026-05-12T08:30:00.123000+00:00"
    assert (call.time_recorded, call.conversation_id, call.turn.num_calls) == (True, "c", 1)
    assert call.toolset.num_tools == 1


def test_states_follow_the_outcome(tenant):
    take(
        [record("a"), record("b", result=None), record("c", is_error=True), record("d", result=None, is_error=True)],
        tenant,
    )
    with tenant_scope(tenant):
        states = dict(ToolCall.objects.values_list("external_id", "state"))
    assert states == {"a": CallState.RESULT, "b": CallState.UNKNOWN, "c": CallState.ERROR, "d": CallState.ERROR}


def test_a_source_without_times_gets_ours_and_says_so(tenant):
    take([record("run-1")], tenant)
    call = only_call(tenant)
    assert not call.time_recorded
    assert not call.turn.time_recorded
    assert call.started_at == call.created_at == call.turn.started_at


def test_the_same_file_twice_changes_nothing(tenant):
    data = lines(*(record(f"run-{n}", tools=TOOLS) for n in range(20)))
    assert take(data, tenant).accepted == 20
    before = state(tenant)
    again = take(data, tenant)
    assert (again.accepted, again.unchanged, again.rejected) == (0, 20, [])
    assert state(tenant) == before


@pytest.mark.parametrize("name", ["parallel_two_cycles", "two_turns_no_result", "single_call"])
def test_a_chat_file_twice_changes_nothing(tenant, name):
    path = corpus.folder() / "traces" / "openai_chat" / f"{name}.json"
    if not path.exists():
        pytest.skip("the corpus has no such file")
    assert take(path.read_bytes(), tenant).accepted == 1
    before = state(tenant)
    again = take(path.read_bytes(), tenant)
    assert (again.accepted, again.unchanged) == (0, 1)
    assert state(tenant) == before


def test_half_a_file_then_the_whole_is_the_whole(tenant, other_tenant):
    items = [record(f"run-{n}", conversation=f"c-{n // 3}", message="m", index=n % 3) for n in range(9)]
    take(items[:5], tenant)
    report = take(items, tenant)
    assert (report.accepted, report.unchanged) == (4, 5)
    take(items, other_tenant)
    assert state(tenant) == state(other_tenant)


def test_two_tenants_hold_the_same_file_apart(tenant, other_tenant):
    data = lines(record("run-1", tools=TOOLS))
    assert take(data, tenant).accepted == 1
    assert take(data, other_tenant).accepted == 1
    take([record("run-2")], tenant)
    assert len(state(tenant)["calls"]) == 2
    assert len(state(other_tenant)["calls"]) == 1


def test_another_content_under_the_same_id_is_refused_and_the_others_are_stored(tenant):
    take([record("run-1")], tenant)
    before = state(tenant)
    report = take([record("run-0"), record("run-1", args={"n": "8"}), record("run-2")], tenant)
    assert (report.accepted, report.unchanged) == (2, 0)
    (refused,) = report.rejected
    assert (refused.index, refused.line, refused.code) == (1, 2, "conflict")
    after = state(tenant)
    assert [call for call in after["calls"] if call["external_id"] == "run-1"] == before["calls"]
    assert len(after["turns"]) == 3


def test_a_conflict_inside_one_batch_refuses_the_later_item(tenant):
    report = take([record("run-1"), record("run-1", args={}), record("run-1")], tenant)
    assert (report.accepted, report.unchanged, [item.index for item in report.rejected]) == (1, 1, [1])
    assert only_call(tenant).args == '{"n": "7"}'


def test_of_a_refused_item_nothing_is_stored(tenant):
    take([record("taken", turn="t", cycle=0, index=0)], tenant)
    chat = {"messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}]}
    chat["metadata"] = {"conversation_id": "c"}
    take([chat], tenant)
    other = {**chat, "messages": [{"role": "user", "content": "Another"}, *chat["messages"][1:]]}
    report = take([other], tenant)
    assert [item.code for item in report.rejected] == ["conflict"]
    with tenant_scope(tenant):
        assert Turn.objects.count() == 2


def test_a_place_in_a_turn_holds_one_call(tenant):
    report = take([record("a", turn="t"), record("b", turn="t"), record("c", turn="t", index=1)], tenant)
    assert (report.accepted, [item.index for item in report.rejected]) == (2, [1])
    later = take([record("d", turn="t", index=1), record("e", turn="t", index=2)], tenant)
    assert (later.accepted, [item.code for item in later.rejected]) == (1, ["conflict"])
    with tenant_scope(tenant):
        assert Turn.objects.get().num_calls == ToolCall.objects.count() == 3


def test_a_result_may_come_later(tenant):
    take([record("run-1", result=None, conversation="c", message="m")], tenant)
    assert only_call(tenant).state == CallState.UNKNOWN
    done = record("run-1", duration_ms=12, conversation="c", message="m")
    assert take([done], tenant).accepted == 1
    call = only_call(tenant)
    assert (call.result, call.state, call.warnings, call.duration_ms) == ('{"status": "sent"}', "result", [], 12)
    assert take([done], tenant).unchanged == 1
    assert take([record("run-1", result=None, conversation="c", message="m")], tenant).unchanged == 1
    assert [item.code for item in take([{**done, "result": 1}], tenant).rejected] == ["conflict"]


CALLED = {
    "external_id": "run-1",
    "tool_name": "get_order",
    "args": {"n": "7"},
    "model": "gpt-x",
    "contact": "joe",
    "index": 1,
    "conversation": "c",
    "message": "m",
    "started_at": "2026-05-12T08:30:00.000Z",
    "tools": TOOLS,
}
ANSWERED = {"external_id": "run-1", "tool_name": "get_order", "result": 42}


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("items", [[CALLED, ANSWERED], [ANSWERED, CALLED]])
def test_what_is_known_of_a_call_outlives_a_record_that_does_not_tell_it(tenant, items, together):
    for batch in [items] if together else [[item] for item in items]:
        assert take(batch, tenant).rejected == []
    call = only_call(tenant)
    assert (call.model, call.contact_id, call.args, call.result, call.state) == (
        "gpt-x",
        "joe",
        '{"n": "7"}',
        "42",
        "result",
    )
    assert (call.conversation_id, call.message_id, call.index, call.warnings) == ("c", "m", 1, [])
    assert (call.toolset.num_tools, call.time_recorded, call.turn.num_calls) == (1, True, 1)
    assert (call.turn.model, call.turn.contact_id, call.turn.conversation_id) == ("gpt-x", "joe", "c")
    assert len(state(tenant)["turns"]) == 1
    assert take(items, tenant).unchanged == 2


def test_two_known_values_are_a_conflict_whichever_comes_first(tenant, other_tenant):
    for order, to in (([0, 1], tenant), ([1, 0], other_tenant)):
        items = [CALLED, {**ANSWERED, "model": "gpt-y"}]
        take([items[order[0]]], to)
        before = state(to)
        (refused,) = take([items[order[1]]], to).rejected
        assert (refused.code, refused.path) == ("conflict", "model")
        assert state(to) == before


def test_a_call_stays_in_the_turn_that_was_told(tenant):
    take([{**CALLED, "turn": "t-1"}], tenant)
    (refused,) = take([{**ANSWERED, "turn": "t-2"}], tenant).rejected
    assert (refused.code, refused.path) == ("conflict", "turn")
    assert len(state(tenant)["turns"]) == 1


def test_labels_stay_when_the_turn_is_told_later(tenant, member):
    reviewer = member().user
    take([ANSWERED], tenant)
    with tenant_scope(tenant):
        call = ToolCall.objects.get()
        record_label(item=item_of_call(call.pk), label="good_reply", reviewer=reviewer)
    assert take([CALLED], tenant).accepted == 1
    assert only_call(tenant).pk == call.pk
    with tenant_scope(tenant):
        assert Feedback.objects.get(call=call).turn.conversation_id == "c"
        assert Review.objects.get().started_at.isoformat() == "2026-05-12T08:30:00+00:00"

    lone, named = {**ANSWERED, "external_id": "run-2"}, {**CALLED, "external_id": "run-2", "index": 2}
    take([lone], tenant)
    with tenant_scope(tenant):
        other = ToolCall.objects.get(external_id="run-2")
        record_label(item=item_of_call(other.pk), label="good_reply", reviewer=reviewer)
    assert [item.path for item in take([named], tenant).rejected] == ["turn"]  # the history of labels cannot move
    with tenant_scope(tenant):
        assert Feedback.objects.count() == 2


def test_a_chat_that_goes_on_grows_its_turns(tenant):
    def chat(count: int) -> dict:
        call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        messages = [
            {"role": "user", "content": "?"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "a", "content": "42"},
            {"role": "assistant", "content": "It is 42."},
            {"role": "user", "content": "Thanks."},
            {"role": "assistant", "content": "Welcome."},
        ]
        return {"messages": messages[:count], "metadata": {"conversation_id": "c"}, "tools": TOOLS}

    for count in (2, 3, 4, 6):
        assert take([chat(count)], tenant).accepted == 1
    whole = state(tenant)
    assert (len(whole["turns"]), len(whole["calls"])) == (2, 1)
    assert (whole["calls"][0]["result"], whole["calls"][0]["outbound_message_id"]) == ('"42"', "#3")
    for count in (3, 2, 6, 4):
        assert take([chat(count)], tenant).unchanged == 1
    assert state(tenant) == whole


def test_toolsets_are_kept_once_whatever_their_spelling(tenant):
    spelled = [b'[{"a":1,"b":2}]', b'[ {"b": 2, "a": 1} ]', b'[{"a":1}]', b'[{"a":"\\u0000"}]', b'[{"a":"\\ud800"}]']
    body = b"\n".join(
        b'{"external_id":"r-%d","tool_name":"t","tools":%s}' % (n, tools) for n, tools in enumerate(spelled)
    )
    assert take(body, tenant).accepted == 5
    assert take(body, tenant).unchanged == 5
    with tenant_scope(tenant):
        assert Toolset.objects.count() == 4
        assert Toolset.objects.filter(tools='[{"a":1,"b":2}]').exists()


def test_the_evidence_of_another_tenant_is_out_of_reach(tenant, other_tenant):
    take([record("run-1")], other_tenant)
    take([record("run-2")], tenant)
    with tenant_scope(tenant):
        assert [call.external_id for call in ToolCall.objects.all()] == ["run-2"]


@pytest.mark.parametrize(
    ("item", "path", "words"),
    [
        ({"messages": []}, "messages", "There is no message, so nothing to store."),
        ({"messages": [{"role": "user", "content": "?"}]}, "messages", "There is no message of the assistant"),
        ({"messages": [{"role": "system", "content": "Be kind."}]}, "messages", "no message of the assistant"),
        (
            {"request": {"messages": [{"role": "user", "content": "?"}]}, "response": {"error": "overloaded"}},
            "request.messages",
            "no message of the assistant",
        ),
    ],
)
def test_a_chat_without_a_reply_is_refused_as_empty(tenant, item, path, words):
    report = take([item], tenant)
    assert (report.accepted, report.unchanged) == (0, 0)
    (refused,) = report.rejected
    assert (refused.code, refused.path) == ("empty", path)
    assert words in refused.message
    assert state(tenant)["turns"] == []


ITEMS = [
    record("a", conversation="c", message="m", result=None),
    record("a", conversation="c", message="m", outbound_message="o"),
    record("b", conversation="c", message="m", index=1, started_at="2026-05-12T08:30:01.000Z", style_id="s"),
    record("c", conversation="c", message="m", index=2, tools=TOOLS, messages=[{"role": "user", "content": "?"}]),
    record("d", turn="t", started_at="2026-05-12T08:30:00.000Z", tools=[{"n": 1}]),
    record("e", turn="t", cycle=1, tools=[{"n": 2}]),
    record("f", turn="t", cycle=2),
    record("g", external_id=None),
    {**CALLED, "external_id": "h", "index": 3},
    {**ANSWERED, "external_id": "h"},
    {**ANSWERED, "external_id": "i"},
    {**CALLED, "external_id": "i", "index": 4},
    {"external_id": "i", "tool_name": "get_order", "duration_ms": 7, "provider": "p", "index": 4},
    {"external_id": "e", "tool_name": "get_order", "contact": "joe", "style_id": "s"},
    {"external_id": "k", "tool_name": "get_order", "tools": TOOLS},
    {"external_id": "k", "tool_name": "get_order", "messages": [{"role": "user", "content": "?"}]},
]


@pytest.fixture
def wanted(other_tenant):
    take(ITEMS, other_tenant)
    return state(other_tenant)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32), st.integers(1, 5))
def test_any_order_repetition_and_batching_gives_one_state(wanted, seed, size):
    tenant = TenantFactory()
    shuffle = random.Random(seed)
    items = [*ITEMS, *shuffle.choices(ITEMS, k=6)]
    shuffle.shuffle(items)
    parsed = outcomes(lines(*items), "neutral")
    for start in range(0, len(parsed), size):
        assert not store(parsed[start : start + size], tenant=tenant).rejected
    assert state(tenant) == wanted


def test_batches_sent_at_the_same_time_give_one_state(tenant, wanted):
    parsed = outcomes(lines(*ITEMS), "neutral")

    def send(seed: int) -> int:
        batch = random.Random(seed).sample(parsed, len(parsed))
        try:
            return store(batch, tenant=tenant).num_calls
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(send, range(8)))
    assert sum(made) == len(wanted["calls"])
    assert state(tenant) == wanted


@pytest.mark.parametrize(("over", "codes"), [(0, []), (1, ["too_many_calls"])])
def test_a_turn_of_too_many_calls_is_refused_when_it_comes_as_one_item(over, codes):
    calls = tuple(
        CallRecord(external_id=str(n), tool_name="get_order", cycle=n // 30_000, index=n % 30_000, source="test")
        for n in range(MAX_CALLS_OF_TURN + over)
    )
    turn = TurnRecord(external_id="turn", source="test", calls=calls)
    assert [one.code for one in prepare([Parsed(0, 1, 1, (turn,))]).plan.report.rejected] == codes
