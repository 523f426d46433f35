"""Hints of stored turns: made behind every writer, made again when turn or rules change, each tenant's alone."""

import datetime as dt
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, transaction

from quality import tasks
from quality.calls import ANY_HINT, CallFilter, Cursor, count, find, hint_counts, matching
from quality.demo import seed
from quality.models import Hint, ToolCall, Turn, TurnState
from quality.review import hinting, hints
from quality.review.items import items_after
from quality.review.summary import hints_in, in_period
from tenants.access import tenant_by_slug
from tenants.models import Tenant
from tenants.scope import tenant_scope
from tests.corpus.corpus import folder
from tests.factories import LATEST, ToolCallFactory, TurnFactory
from tests.ingest.helpers import NEUTRAL, take

BAD = {**NEUTRAL, "args": [7]}


def rows(tenant: Tenant) -> list[tuple[Any, ...]]:
    with tenant_scope(tenant):
        return list(Hint.objects.order_by("pk").values_list())


def rules(tenant: Tenant) -> list[str]:
    with tenant_scope(tenant):
        return sorted(Hint.objects.values_list("rule", flat=True))


def versions(tenant: Tenant) -> set[int]:
    with tenant_scope(tenant):
        return set(Turn.objects.values_list("hints_version", flat=True))


def test_what_is_stored_waits_for_hints_and_gets_them(tenant: Tenant, other_tenant: Tenant) -> None:
    take([BAD], tenant)
    take([NEUTRAL], other_tenant)
    assert hinting.waiting() == sorted([tenant.pk, other_tenant.pk])
    tasks.make_hints(tenant.pk)
    assert rules(tenant) == ["args_not_object"]
    assert (versions(tenant), versions(other_tenant)) == ({hints.VERSION}, {0})
    assert hinting.waiting() == [other_tenant.pk]
    tasks.make_hints(other_tenant.pk)
    assert (rules(other_tenant), hinting.waiting()) == ([], [])
    with tenant_scope(tenant):
        hint, call = Hint.objects.get(), ToolCall.objects.get()
        assert (hint.call_id, hint.turn_id, hint.started_at) == (call.pk, call.turn_id, call.started_at)


def test_made_again_nothing_changes(db: None) -> None:
    call_command("demo", verbosity=0)
    tenant = tenant_by_slug(seed.PLANS[1].slug)
    assert tenant
    assert not hinting.make(tenant)
    before = rows(tenant)
    assert before
    call_command("make_hints", tenant=tenant.slug, again=True)
    assert rows(tenant) == before


def test_a_result_that_comes_later_makes_the_hints_anew(tenant: Tenant) -> None:
    asked = {name: value for name, value in NEUTRAL.items() if name != "result"}
    take([asked], tenant)
    hinting.make(tenant)
    assert (rules(tenant), versions(tenant)) == ([], {hints.VERSION})
    take([{**asked, "result": []}], tenant)
    assert versions(tenant) == {0}
    hinting.make(tenant)
    assert rules(tenant) == ["empty_result"]


def test_the_same_again_and_what_has_nothing_to_do_with_it_does_not(tenant: Tenant) -> None:
    take([BAD], tenant)
    hinting.make(tenant)
    take([BAD], tenant)
    assert versions(tenant) == {hints.VERSION}


def test_a_change_while_hints_are_made_is_not_lost(tenant: Tenant) -> None:
    """The change holds its rows until after the hints were written: it comes last."""
    with tenant_scope(tenant):
        call = ToolCallFactory(result="[]")
    changed, made = Event(), Event()

    def change() -> None:
        with tenant_scope(tenant):
            ToolCall.objects.filter(pk=call.pk).update(result='["x"]')
            changed.set()
            assert made.wait(60)
            Turn.objects.filter(pk=call.turn_id).update(hints_version=0)
        connection.close()

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(change)
        assert changed.wait(60)
        hinting.make(tenant)
        assert rules(tenant) == ["empty_result"]
        made.set()
        running.result()
    hinting.make(tenant)
    assert rules(tenant) == []


def test_a_turn_under_way_has_none_until_it_ends(tenant: Tenant) -> None:
    with tenant_scope(tenant):
        call = ToolCallFactory(turn__state=TurnState.RUNNING, result="[]")
    hinting.make(tenant)
    assert (rules(tenant), versions(tenant)) == ([], {hints.VERSION})
    with tenant_scope(tenant):
        Turn.objects.filter(pk=call.turn_id).update(state=TurnState.DONE, hints_version=0)
    hinting.make(tenant)
    assert rules(tenant) == ["empty_result"]


def test_new_rules_look_at_all_turns_again_step_by_step(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    with tenant_scope(tenant):
        for _ in range(5):
            ToolCallFactory(result="[]")
    hinting.make(tenant)
    first = rows(tenant)
    monkeypatch.setattr(hints, "VERSION", hints.VERSION + 1)
    monkeypatch.setattr(hinting, "STEP", 2)
    assert [hinting.sweep_outdated() for _ in range(4)] == [2, 2, 1, 0]
    assert versions(tenant) == {0}
    hinting.make(tenant)
    assert (rows(tenant), versions(tenant)) == (first, {hints.VERSION})


def test_the_sweep_takes_up_what_nobody_was_told_of(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[int, ...]] = []
    monkeypatch.setattr(hinting, "_publish", lambda _: None)
    take([BAD], tenant)
    monkeypatch.setattr(tasks.make_hints, "delay", lambda *args: sent.append(args))
    tasks.tick()
    assert sent == [(tenant.pk,)]


def test_storing_wakes_the_workers_once_it_is_committed(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []
    monkeypatch.setattr(tasks, "publish_aside", lambda task, *args: sent.append(args))
    monkeypatch.setattr(hinting, "WAKE_S", 3600)
    monkeypatch.setattr(hinting, "_woken", {})
    with transaction.atomic():
        take([BAD], tenant)
        assert sent == []
    take([{**BAD, "external_id": "run-2"}], tenant)
    assert sent == [(tenant.pk,)]


def test_a_later_reply_is_looked_at_again_when_what_it_rests_on_comes_in(tenant: Tenant) -> None:
    with tenant_scope(tenant):
        reply = [{"role": "user", "content": "How much?"}, {"role": "assistant", "content": "It was 37.50 EUR."}]
        later = TurnFactory(conversation_id="c", messages=json.dumps(reply), num_cycles=2)
        ToolCallFactory(turn=later, result='{"status": "sent"}')
    hinting.make(tenant)
    assert rules(tenant) == ["contradicts_result"]
    with tenant_scope(tenant):
        told = [{"role": "user", "content": "I paid 37.5"}, {"role": "assistant", "content": "Thank you."}]
        TurnFactory(conversation_id="c", messages=json.dumps(told), started_at=later.started_at - dt.timedelta(hours=1))
    hinting.make(tenant)
    assert rules(tenant) == []


def test_a_call_is_slow_beside_those_before_it_whatever_comes_after(tenant: Tenant) -> None:
    with tenant_scope(tenant):
        slow = ToolCallFactory(duration_ms=9_000, turn__started_at=LATEST)
        for number in range(25):
            ToolCallFactory(duration_ms=200 + number, turn__started_at=LATEST - dt.timedelta(hours=1 + number))
        for number in range(25):
            ToolCallFactory(duration_ms=9_000, turn__started_at=LATEST + dt.timedelta(hours=1 + number), is_error=True)
    hinting.make(tenant)
    with tenant_scope(tenant):
        hint = Hint.objects.get(rule="slow_call", call=slow)
    assert hint.sentence == (
        "Took 9.0 s; the 25 calls of get_weather before it took 212 ms in the median, half of them within 6 ms of that."
    )


def test_a_rule_that_trips_costs_one_turn_its_hints(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    with tenant_scope(tenant):
        calls = [ToolCallFactory(result="[]") for _ in range(3)]
    real: Callable[..., Any] = hints.hints_of

    def trips(turn: hints.SeenTurn) -> list[hints.Remark]:
        if turn.calls[0].id == calls[1].pk:
            raise RuntimeError("tripped")
        return real(turn)  # type: ignore[no-any-return]

    monkeypatch.setattr(hints, "hints_of", trips)
    hinting.make(tenant)
    with tenant_scope(tenant):
        assert set(Hint.objects.values_list("call", flat=True)) == {calls[0].pk, calls[2].pk}
    assert versions(tenant) == {hints.VERSION}


def test_lists_and_review_and_figures_go_by_hints(tenant: Tenant, other_tenant: Tenant) -> None:
    with tenant_scope(other_tenant):
        ToolCallFactory(result="[]")
    hinting.make(other_tenant)
    with tenant_scope(tenant):
        empty, bad = ToolCallFactory(result="[]"), ToolCallFactory(args='{"unit": 7}', result="[]")
        ToolCallFactory()
        words = TurnFactory()  # says "I will look it up." and calls nothing
    hinting.make(tenant)
    with tenant_scope(tenant):
        assert hint_counts() == {**dict.fromkeys(hints.BY_NAME, 0), "empty_result": 2, "schema_violation": 1}
        by_rule = {rule: CallFilter(hints=(rule,)) for rule in (*hints.BY_NAME, ANY_HINT)}
        found = {rule: [row.id for row in find(wanted).rows] for rule, wanted in by_rule.items()}
        assert {rule: ids for rule, ids in found.items() if ids} == {
            "empty_result": [empty.pk, bad.pk],
            "schema_violation": [bad.pk],
            ANY_HINT: [empty.pk, bad.pk],
        }
        both = CallFilter(hints=("schema_violation", "empty_result"))
        assert [row.id for row in find(both).rows] == [empty.pk, bad.pk]
        row = find(CallFilter(hints=("schema_violation",))).rows[0]
        assert [(hint.rule, hint.path) for hint in row.hints] == [
            ("schema_violation", "/city"),
            ("schema_violation", "/unit"),
            ("empty_result", ""),
        ]
        queue = items_after(None, by_rule[ANY_HINT], limit=9)
        assert [item.call_id or item.turn_id for item in queue] == [empty.pk, bad.pk, words.pk]
        period = in_period(CallFilter(since=LATEST - dt.timedelta(days=1), until=LATEST + dt.timedelta(days=1)))
        figures = {one.rule.name: (one.num_calls, one.num_turns) for one in hints_in(period)}
        assert figures == {"empty_result": (2, 0), "schema_violation": (1, 0), "call_in_prose": (0, 1)}


def test_pages_of_rare_hints_follow_one_another_without_a_gap(tenant: Tenant) -> None:
    """Some calls have two hints of a rule, some do not pass the rest of the filter, some share their time."""
    with tenant_scope(tenant):
        for number in range(60):
            at = LATEST - dt.timedelta(minutes=number // 3)
            args = '{"unit": 7, "x": 1}' if number % 4 == 0 else '{"city": "Z"}'
            name = "get_weather" if number % 3 else "other"
            ToolCallFactory(turn__started_at=at, args=args, tool_name=name, result="[]" if number % 5 == 0 else "1")
    hinting.make(tenant)
    with tenant_scope(tenant):
        for wanted in (
            CallFilter(hints=("schema_violation",)),
            CallFilter(hints=(ANY_HINT,)),
            CallFilter(hints=("empty_result", "unknown_tool"), tools=("other",)),
            CallFilter(hints=("schema_violation",), error="yes"),
        ):
            ordered = list(matching(wanted).order_by("-started_at", "-pk").values_list("pk", flat=True))
            assert count(wanted) == len(ordered)
            for size in (1, 2, 7):
                page, walked = find(wanted, page_size=size), list[int]()
                while True:
                    walked += [row.id for row in page.rows]
                    if page.next is None:
                        break
                    page = find(wanted, cursor=Cursor.read(page.next), page_size=size)
                assert walked == ordered
                while page.previous is not None:
                    page = find(wanted, cursor=Cursor.read(page.previous), page_size=size)
                assert [row.id for row in page.rows] == ordered[:size]
            queue = items_after(None, wanted, limit=100)
            assert [item.call_id for item in queue if item.call_id] == ordered


@pytest.mark.parametrize("name", ["openai_chat", "vercel_ui", "otel_genai"])
def test_a_corpus_of_traces_has_hints_twice_the_same(name: str, tenant: Tenant, other_tenant: Tenant) -> None:
    files = [file for file in sorted((folder() / "traces" / name).glob("*")) if file.suffix in (".json", ".jsonl")]
    if not files:
        pytest.skip(f"There are no traces of {name}.")
    for one in (tenant, other_tenant):
        for file in files:
            if "expected" not in file.name:
                take(Path(file).read_bytes(), one)
        hinting.make(one)
    said = []
    for one in (tenant, other_tenant):
        with tenant_scope(one):
            columns = ("turn__external_id", "call__external_id", "cycle", "rule", "path", "sentence")
            said.append(sorted(Hint.objects.values_list(*columns), key=str))
    assert said[0] == said[1]
