"""Traces and chats that are spread over the files of an archive, or over pages: joined, or named for what they are."""

import json
import random
from collections.abc import Callable
from io import BytesIO
from typing import Any

import pytest

from quality.ingest import preview, store
from quality.ingest.files import TraceFile
from quality.ingest.items import Parsed
from quality.ingest.preview import Preview
from quality.ingest.reader import ItemError
from quality.models import Import, ImportIssue, ToolCall, Turn
from tenants.models import Tenant
from tenants.scope import tenant_scope
from tests.ingest.helpers import NEUTRAL, lines, outcomes, take
from tests.ingest.span_files import START, genai_chat, genai_tool, otlp
from tests.ingest.test_gathering import trace_id
from tests.ingest.test_importer import run  # noqa: F401  (a fixture)
from tests.ingest.test_packed import zipped

PAGES = 3
TIMES = ("2026-05-03T09:45:00Z", "2026-05-03T09:45:01Z")


def dumped(value: Any) -> bytes:
    return json.dumps(value).encode()


def read(data: bytes) -> list[Parsed | ItemError]:
    return list(TraceFile(BytesIO(data), max_bytes=1024 * 1024))


def turns_of(found: list[Parsed | ItemError]) -> set[tuple[str, tuple[tuple[str, int, int], ...]]]:
    """Turns with the places of their calls, whatever order they came out in."""
    return {
        (turn.external_id, tuple((call.external_id, call.cycle, call.index) for call in turn.calls))
        for item in found
        if isinstance(item, Parsed)
        for turn in item.turns
    }


def refusals(found: list[Parsed | ItemError]) -> list[ItemError]:
    return [item for item in found if isinstance(item, ItemError)]


def spans_of(trace: str) -> list[dict[str, Any]]:
    """Two replies with a call each, and the last words."""
    return [
        genai_chat(1, "a", trace=trace),
        genai_tool(2, call_id="a", trace=trace),
        genai_chat(3, "b", trace=trace),
        genai_tool(4, call_id="b", trace=trace),
        genai_chat(5, trace=trace),
    ]


def observation(trace: str, number: int) -> dict[str, Any]:
    return {
        "id": f"o-{trace}-{number}",
        "traceId": trace,
        "type": "TOOL",
        "name": "get_order",
        "startTime": f"2026-05-03T09:45:{number:02d}Z",
        "endTime": f"2026-05-03T09:46:{number:02d}Z",
        "input": '{"n":"7"}',
        "output": "sent",
    }


def langfuse(number: int, cursor: str | None) -> dict[str, Any]:
    return {"data": [observation(trace, number) for trace in ("t1", "t2")], "meta": {"cursor": cursor}}


def phoenix(number: int, cursor: str | None) -> dict[str, Any]:
    spans = [
        {
            "name": "get_order",
            "context": {"trace_id": trace_id(trace), "span_id": f"{number + 1:016x}"},
            "span_kind": "TOOL",
            "start_time": f"2026-05-03T09:45:{number:02d}+00:00",
            "end_time": f"2026-05-03T09:46:{number:02d}+00:00",
            "attributes": {"tool.name": "get_order", "input.value": "{}"},
        }
        for trace in (1, 2)
    ]
    return {"data": spans, "next_cursor": cursor}


def listed(number: int, cursor: str | None) -> dict[str, Any]:
    """A page of Langfuse's first version, which counts its pages."""
    return {**langfuse(number, None), "meta": {"page": number + 1, "totalPages": PAGES}}


PAGED = pytest.mark.parametrize("page", [langfuse, phoenix, listed])


def pages_of(page: Callable[[int, str | None], dict[str, Any]]) -> list[dict[str, Any]]:
    return [page(number, f"c-{number}" if number < PAGES - 1 else None) for number in range(PAGES)]


@PAGED
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_pages_in_an_archive_read_like_one_file(
    page: Callable[[int, str | None], dict[str, Any]], order: tuple[int, ...], tenant: Tenant
) -> None:
    pages = pages_of(page)
    archive = read(zipped({f"page-{number}.json": dumped(pages[number]) for number in order}))
    assert refusals(archive) == []
    assert turns_of(archive) == turns_of(outcomes(b"\n".join(map(dumped, pages))))
    assert {len(calls) for _, calls in turns_of(archive)} == {PAGES}
    report = store.store([item for item in archive if isinstance(item, Parsed)], tenant=tenant)
    assert (report.rejected, report.num_turns, report.num_calls) == ([], 2, 2 * PAGES)


def test_spans_of_many_traces_over_the_files_of_an_archive_are_joined() -> None:
    spans = [span for number in range(30) for span in spans_of(trace_id(number))]
    random.Random(7).shuffle(spans)
    files = {f"{at:03}.jsonl": lines(*map(otlp, spans[at : at + 10])) for at in range(0, len(spans), 10)}
    found = read(zipped(files))
    assert refusals(found) == []
    assert turns_of(found) == turns_of(outcomes(dumped(otlp(*spans))))


def test_a_chat_logged_over_two_files_is_one() -> None:
    user, reply = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}
    pairs = [
        {"request": {"messages": [user]}, "response": {"id": "r1", "choices": [{"message": reply}]}},
        {"request": {"messages": [user, reply, user]}, "response": {"id": "r2", "choices": [{"message": reply}]}},
    ]
    found = read(zipped({"monday.jsonl": lines(pairs[0]), "tuesday.jsonl": lines(pairs[1])}))
    assert turns_of(found) == turns_of(outcomes(lines(*pairs)))
    assert len(turns_of(found)) == 2


@PAGED
def test_pages_without_the_last_are_named_and_completed_by_all_of_them(
    page: Callable[[int, str | None], dict[str, Any]], tenant: Tenant
) -> None:
    pages = [dumped(one) for one in pages_of(page)]
    first = take(pages[0], tenant)
    assert [one.code for one in first.rejected] == ["more_pages"]
    assert "a zip of them" in first.rejected[0].message
    two = take(b"\n".join(pages[:2]), tenant)
    assert [one.code for one in two.rejected] == ["more_pages"]
    whole = take(b"\n".join(pages), tenant)
    assert whole.rejected == []
    with tenant_scope(tenant):
        assert (Turn.objects.count(), ToolCall.objects.count()) == (2, 2 * PAGES)
        assert sorted(ToolCall.objects.values_list("index", flat=True)) == sorted(2 * [*range(PAGES)])


def test_what_is_no_trace_in_an_archive_casts_no_doubt_on_what_is_beside_it() -> None:
    spans = spans_of(trace_id(1))
    files = {
        "a.json": dumped(otlp(*spans[:2])),
        "README.md": b"# Traces\n\nof May",
        "package.json": b'{"name": "export", "version": 1}',
        "b.json": dumped(otlp(*spans[2:])),
        "zz.txt": b"\x00\x01",
    }
    found = read(zipped(files))
    assert [one.code for one in refusals(found)] == ["other_file", "unknown_format", "other_file"]
    assert turns_of(found) == turns_of(outcomes(dumped(otlp(*spans))))


@pytest.mark.parametrize("broken", [b'{"resourceSpans": [', b"not json", b'{"resourceSpans": 1}'])
def test_a_broken_file_of_an_archive_leaves_traces_whole_that_are_a_file_each(broken: bytes) -> None:
    files = {f"{number}.json": dumped(otlp(*spans_of(trace_id(number)))) for number in range(5)}
    found = read(zipped({**files, "2.json": broken, "9.json": broken}))
    assert len(refusals(found)) == 2
    whole = {turn for turn in turns_of(found) if len(turn[1]) == 2}
    assert len(whole) == len(turns_of(found)) == 4


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_broken_page_leaves_calls_alone_until_it_comes(place: int, tenant: Tenant) -> None:
    """Each trace goes on over all pages, so that one that is missing may hold some of any."""
    spans = [spans_of(trace_id(number)) for number in range(4)]
    pages = [dumped(otlp(*(each for one in spans for each in one[at : at + 2]))) for at in (0, 2, 4)]
    files = {f"{at}.json": page for at, page in enumerate(pages)}
    found = read(zipped({**files, f"{place}.json": pages[place][:-200] if place else b"{"}))
    assert len(refusals(found)) == 1
    places = {call for _, calls in turns_of(found) for call in calls}
    assert all(cycle == 0 for _, cycle, _ in places)
    report = store.store([item for item in found if isinstance(item, Parsed)], tenant=tenant)
    again = store.store([item for item in read(zipped(files)) if isinstance(item, Parsed)], tenant=tenant)
    assert (report.rejected, again.rejected) == ([], [])
    with tenant_scope(tenant):
        assert (Turn.objects.count(), ToolCall.objects.count()) == (4, 8)


def test_a_first_line_that_is_broken_may_have_held_some_of_the_trace_after_it() -> None:
    spans = spans_of(trace_id(1))
    whole = lines(*map(otlp, spans))
    found = outcomes(b"{\n" + whole.partition(b"\n")[2])
    assert len(refusals(found)) == 1
    assert {len(calls) for _, calls in turns_of(found)} == {1}
    assert len(turns_of(found)) == 2


def test_lines_of_two_conventions_are_one_trace() -> None:
    """A collector writes what comes; a framework and its client may be instrumented by two hands."""
    attributes = {"openinference.span.kind": "TOOL", "tool.name": "get_order", "input.value": "{}"}
    other = {**genai_tool(3), "attributes": [{"key": k, "value": {"stringValue": v}} for k, v in attributes.items()]}
    spans = [genai_chat(1), other, genai_chat(4), genai_tool(5)]
    assert turns_of(outcomes(lines(*map(otlp, spans)))) == turns_of(outcomes(dumped(otlp(*spans))))
    assert int(spans[0]["startTimeUnixNano"]) > START


# --- what a look at the file foresees ---------------------------------------------------------------------------------
def look(data: bytes, tenant: Tenant) -> Preview:
    with tenant_scope(tenant):
        return preview.look_at(BytesIO(data), max_bytes=1024 * 1024, foresee=store.foresee)


@PAGED
def test_a_look_says_that_pages_are_missing(page: Callable[[int, str | None], dict[str, Any]], tenant: Tenant) -> None:
    pages = pages_of(page)
    seen = look(dumped(pages[0]), tenant)
    assert [one.code for one in seen.refusals] == ["more_pages"]
    archive = zipped({f"{number}.json": dumped(one) for number, one in enumerate(pages)})
    assert look(archive, tenant).refusals == []


def test_a_look_at_the_beginning_of_many_pages_misses_none(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preview, "MAX_ITEMS", 2)
    seen = look(b"\n".join(dumped(one) for one in pages_of(langfuse)), tenant)
    assert (seen.is_whole, seen.refusals) == (False, [])


def test_a_look_foresees_what_is_stored_already_and_what_would_be_refused(
    run: Callable[..., Import],  # noqa: F811
    tenant: Tenant,
) -> None:
    run(lines(NEUTRAL, {**NEUTRAL, "external_id": "run-2"}))
    other, new = {**NEUTRAL, "external_id": "run-2", "result": 1}, {**NEUTRAL, "external_id": "run-3"}
    data = lines(NEUTRAL, {"tool_name": "t", "cycle": -1}, other, new)
    seen = look(data, tenant)
    assert (seen.num_known, seen.num_refused) == (1, 2)
    assert [(one.line, one.code) for one in seen.refusals] == [(2, "out_of_range"), (3, "conflict")]
    job = run(data)
    with tenant_scope(tenant):
        found = [(one.line, one.message) for one in ImportIssue.objects.filter(import_job=job).order_by("line")]
    assert found == [(one.line, one.message) for one in seen.refusals]
    assert (job.num_unchanged, job.num_accepted) == (1, 1)


def test_a_look_at_a_second_page_that_conflicts_says_so(tenant: Tenant) -> None:
    pages = [dumped(otlp(genai_tool(number, call_id=None))) for number in (1, 2)]
    take(pages[0], tenant)
    seen = look(pages[1], tenant)
    assert [one.code for one in seen.refusals] == ["conflict"]
    assert "one zip" in seen.refusals[0].message


def test_a_look_stores_nothing(tenant: Tenant) -> None:
    look(lines(NEUTRAL), tenant)
    with tenant_scope(tenant):
        assert not Turn.objects.exists()
