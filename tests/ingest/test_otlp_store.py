"""Spans of a trace late, in pieces, in any order and more than once: what is stored is what one file of them gives."""

import datetime as dt
import json
import random
import threading
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from quality import tasks
from quality.ingest import otlp, otlp_keeping, otlp_store, otlp_turns
from quality.ingest.otlp import Encoding
from quality.models import Feedback, OtlpSpan, OtlpTrace, Review, ToolCall, Turn
from quality.review import labelling
from quality.review.items import item_of_call
from tenants.models import AuditEvent, Tenant
from tenants.scope import tenant_scope
from tests.corpus import corpus
from tests.ingest.helpers import state, take
from tests.ingest.otlp_files import batch, spans_of
from tests.ingest.span_files import TRACE, genai_chat, genai_tool, otlp_span

FILES = [
    path
    for name in ("otel_genai", "openinference")
    for path in sorted((corpus.folder() / "traces" / name).glob("*.json"))
    if "resourceSpans" in json.loads(path.read_bytes())
]


def send(tenant: Tenant, *spans: dict[str, Any]) -> otlp_store.Arrival:
    request = otlp.read_request(json.dumps(batch(spans)).encode(), Encoding.JSON)
    assert not request.num_rejected, request.refusal
    return otlp_store.receive(request.spans, tenant=tenant)


def places(tenant: Tenant) -> list[tuple[int, int, str | None]]:
    with tenant_scope(tenant):
        return list(ToolCall.objects.order_by("cycle", "index").values_list("cycle", "index", "tool_call_id"))


def long_trace() -> list[dict[str, Any]]:
    """Replies with calls by id, by name alone, run twice, not run, and an agent above them all."""
    agent = otlp_span(1, {"gen_ai.operation.name": "invoke_agent", "gen_ai.conversation.id": "c-1"})
    return [
        agent,
        genai_chat(10, "a", "b", parentSpanId=agent["spanId"]),
        genai_tool(12, call_id="b"),
        genai_tool(11, call_id="a", parentSpanId=agent["spanId"]),
        genai_tool(14, call_id="a"),
        genai_chat(20, "c", "d"),
        genai_tool(21, call_id=None),
        genai_tool(22, call_id="x", attributes={"gen_ai.tool.name": "other"}),
        genai_chat(30),
    ]


def shuffled(spans: list[dict[str, Any]], seed: int) -> list[list[dict[str, Any]]]:
    """Batches in another order, some spans twice."""
    draw = random.Random(seed)
    spans = [*spans, *draw.sample(spans, len(spans) // 3)]
    draw.shuffle(spans)
    batches = []
    while spans:
        size = draw.randint(1, 3)
        batches.append(spans[:size])
        spans = spans[size:]
    return batches


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
@pytest.mark.parametrize("seed", range(3))
def test_pieces_in_any_order_give_what_the_file_gives(path, seed, tenant, other_tenant):
    document = json.loads(path.read_bytes())
    take(path.read_bytes(), other_tenant)
    for spans in shuffled(list(spans_of(document)), seed):
        send(tenant, *spans)
    assert state(tenant) == state(other_tenant)


@pytest.mark.parametrize("seed", range(12))
def test_each_piece_is_seen_at_once_and_the_last_makes_it_right(seed, tenant, other_tenant):
    spans = long_trace()
    take([batch(spans)], other_tenant)
    known: set[str] = set()
    for sent in shuffled(spans, seed):
        send(tenant, *sent)
        known |= {f"{TRACE}:{span['spanId']}" for span in sent if span["attributes"][0]["value"] == _EXECUTE}
        with tenant_scope(tenant):
            there = set(ToolCall.objects.values_list("external_id", flat=True))
            numbers = set(Turn.objects.values_list("num_calls", flat=True))
        assert known <= there
        assert numbers in ({len(there)}, set())
    assert state(tenant) == state(other_tenant)


_EXECUTE = {"stringValue": "execute_tool"}


def test_the_same_batch_again_reads_nothing_again(tenant, django_assert_max_num_queries):
    send(tenant, *long_trace())
    before = state(tenant)
    with tenant_scope(tenant):
        version = OtlpTrace.objects.get().version
    with django_assert_max_num_queries(6):
        send(tenant, *long_trace())
    with tenant_scope(tenant):
        trace = OtlpTrace.objects.get()
    assert (trace.version, trace.read_version) == (version, version)
    assert state(tenant) == before


def test_a_span_sent_at_its_start_is_completed_by_its_end_and_never_undone(tenant):
    done = genai_tool(2)
    begun = {**done, "endTimeUnixNano": "0", "attributes": done["attributes"][:3]}
    for spans in ([begun], [done], [begun]):
        send(tenant, *spans)
    with tenant_scope(tenant):
        call = ToolCall.objects.get()
    assert (call.result, call.duration_ms, call.warnings) == ('{"status": "sent"}', 1, [])


def test_a_call_of_a_reply_becomes_the_row_of_its_tools_span_with_its_label(tenant, member):
    reviewer = member().user
    send(tenant, genai_chat(1, "a", "b"))
    with tenant_scope(tenant):
        first, second = ToolCall.objects.order_by("index")
        labelling.record_label(item=item_of_call(second.pk), label="bad_args", reviewer=reviewer)
    send(tenant, genai_tool(2, call_id="a"))
    assert places(tenant) == [(0, 0, "a"), (0, 1, "b")]
    send(tenant, genai_tool(3, call_id="b"))
    assert places(tenant) == [(0, 0, "a"), (0, 1, "b")]
    with tenant_scope(tenant):
        assert list(ToolCall.objects.order_by("index").values_list("pk", flat=True)) == [first.pk, second.pk]
        assert Feedback.objects.get().call_id == second.pk
        assert ToolCall.objects.get(pk=second.pk).result == '{"status": "sent"}'


def test_labels_stay_on_a_call_that_comes_to_another_place(tenant, member):
    reviewer = member().user
    send(tenant, genai_chat(10, "b"), genai_tool(11, call_id="b"))
    with tenant_scope(tenant):
        call = ToolCall.objects.get()
        labelling.record_label(item=item_of_call(call.pk), label="bad_args", reviewer=reviewer)
        audited = AuditEvent.objects.count()
    send(tenant, genai_chat(1, "a"), genai_tool(2, call_id="a"))
    assert places(tenant) == [(0, 0, "a"), (1, 0, "b")]
    with tenant_scope(tenant):
        assert AuditEvent.objects.count() == audited
        item = item_of_call(call.pk)
        assert (item.cycle, Review.objects.get().cycle) == (1, 1)
        (label,) = labelling.current_labels(item)
        assert label.label == "bad_args"
        assert [event.version for event in labelling.history(item)] == [1]
        assert not labelling.record_label(item=item, label="bad_args", reviewer=reviewer).created
        labelling.record_label(item=item, label="wrong_tool", reviewer=reviewer)
        labelling.undo(item=item, reviewer=reviewer)
        assert labelling.current_labels(item)[0].label == "bad_args"
        assert Review.objects.get().version == 3


def test_the_turn_takes_another_name_with_the_first_span_of_another_convention(tenant, other_tenant):
    tool = genai_tool(5, call_id="a")
    model = otlp_span(
        1,
        {
            "openinference.span.kind": "LLM",
            "llm.output_messages.0.message.role": "assistant",
            "llm.output_messages.0.message.tool_calls.0.tool_call.id": "a",
            "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "get_order",
        },
    )
    send(tenant, tool)
    with tenant_scope(tenant):
        turn = Turn.objects.get()
    assert turn.source == "otel_genai"
    send(tenant, model)
    with tenant_scope(tenant):
        assert (Turn.objects.get().pk, Turn.objects.get().source) == (turn.pk, "openinference")
    take([batch([model, tool])], other_tenant)
    assert state(tenant) == state(other_tenant)


def test_a_trace_that_came_as_a_file_loses_nothing_to_a_part_of_it(tenant):
    spans = long_trace()
    take([batch(spans)], tenant)
    before = state(tenant)
    send(tenant, spans[3])
    assert state(tenant) == before


def test_a_file_after_the_spans_finds_all_there(tenant):
    send(tenant, *long_trace())
    before = state(tenant)
    report = take([batch(long_trace())], tenant)
    assert (report.accepted, report.num_calls, report.rejected) == (0, 0, [])
    assert state(tenant) == before


def test_two_tenants_send_one_trace_and_neither_sees_the_others(tenant, other_tenant):
    send(tenant, *long_trace()[:4])
    send(other_tenant, *long_trace()[4:])
    with tenant_scope(tenant):
        mine = set(ToolCall.objects.values_list("tool_call_id", flat=True))
        assert OtlpSpan.objects.count() == 4
    assert mine == {"a", "b"}
    before = state(tenant)
    send(other_tenant, *long_trace())
    assert state(tenant) == before


def test_batches_of_one_trace_at_the_same_time_lose_nothing(tenant, other_tenant):
    spans = [genai_chat(10 * n, f"call-{n}") for n in range(1, 13)]
    spans += [genai_tool(10 * n + 1, call_id=f"call-{n}") for n in range(1, 13)]
    take([batch(spans)], other_tenant)
    random.Random(1).shuffle(spans)
    faults: list[BaseException] = []

    def work(part: list[dict[str, Any]]) -> None:
        try:
            for span in part:
                send(tenant, span)
        except BaseException as fault:
            faults.append(fault)
        finally:
            connection.close()

    threads = [threading.Thread(target=work, args=(spans[n::4],)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
    assert state(tenant) == state(other_tenant)


def test_an_overtaken_reading_is_not_written_over_a_newer_one(tenant):
    send(tenant, genai_tool(1, call_id="a"))
    with tenant_scope(tenant):
        pk = OtlpTrace.objects.get().pk
        OtlpTrace.objects.update(read_version=0)
        ((row, texts),) = otlp_turns.load([pk])
    old = otlp_turns.understand(row, texts, {})
    send(tenant, genai_tool(2, call_id="b"))
    with tenant_scope(tenant):
        otlp_turns.write([old])
    assert len(places(tenant)) == 2


def test_a_large_trace_is_read_by_a_worker_and_found_by_the_sweep(tenant, other_tenant, monkeypatch):
    published: list[tuple[str, *tuple[int, ...]]] = []
    monkeypatch.setattr(tasks, "publish_aside", lambda task, *args: published.append((task.name, *args)))
    monkeypatch.setattr(otlp_keeping, "READ_AT_ONCE", 3)
    send(tenant, *long_trace()[:3])
    assert len(places(tenant)) == 1
    send(tenant, *long_trace()[3:])
    assert len(places(tenant)) == 1
    with tenant_scope(tenant):
        trace = OtlpTrace.objects.get()
    assert (tasks.read_spans.name, tenant.pk, trace.pk) in published
    assert not otlp_store.unread().exists()
    with tenant_scope(tenant):
        OtlpTrace.objects.update(last_at=timezone.now() - dt.timedelta(minutes=2))
    assert list(otlp_store.unread().values_list("pk", flat=True)) == [trace.pk]
    otlp_store.run(trace.pk, tenant_id=tenant.pk)
    assert not otlp_store.unread().exists()
    take([batch(long_trace())], other_tenant)
    assert state(tenant) == state(other_tenant)


def test_a_reading_that_keeps_failing_is_given_up_until_more_comes(tenant, monkeypatch):
    def fail(*args: Any, **named: Any) -> None:
        raise RuntimeError("no")

    with monkeypatch.context() as patch:
        patch.setattr(otlp_store, "write", fail)
        send(tenant, genai_tool(1))
        with tenant_scope(tenant):
            OtlpTrace.objects.update(last_at=timezone.now() - dt.timedelta(minutes=2))
            trace = OtlpTrace.objects.get()
        for _ in range(otlp_store.MAX_ATTEMPTS):
            with pytest.raises(RuntimeError):
                otlp_store.run(trace.pk, tenant_id=tenant.pk)
        otlp_store.run(trace.pk, tenant_id=tenant.pk)
        assert not otlp_store.unread().exists()
    send(tenant, genai_tool(2, call_id="b"))
    assert len(places(tenant)) == 2


def test_a_trace_holds_so_many_spans_and_refuses_the_rest_by_name(tenant, monkeypatch):
    monkeypatch.setattr(otlp_keeping, "MAX_SPANS_OF_TRACE", 3)
    arrival = send(tenant, *(genai_tool(n, call_id=f"{n}") for n in range(1, 6)))
    assert arrival.num_rejected == 2
    assert TRACE in arrival.refusal
    assert len(places(tenant)) == 3


def test_old_traces_go_and_their_calls_stay_also_when_more_comes(tenant, settings):
    send(tenant, *long_trace())
    before = state(tenant)
    with tenant_scope(tenant):
        OtlpTrace.objects.update(last_at=timezone.now() - dt.timedelta(days=settings.OTLP_KEEP_DAYS, minutes=1))
    assert otlp_store.delete_old() == 1
    with tenant_scope(tenant):
        assert not OtlpSpan.objects.exists()
    assert state(tenant) == before
    send(tenant, genai_tool(40, call_id="late"))
    with tenant_scope(tenant):
        assert ToolCall.objects.count() == len(before["calls"]) + 1
    assert [call for call in state(tenant)["calls"] if call["tool_call_id"] != "late"] == before["calls"]
