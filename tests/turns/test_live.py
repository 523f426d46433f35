"""Event streams from a real server: in order, resumable, one listening connection for all."""

import asyncio
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from django.db import connection

from quality.api.auth import still_has
from quality.models import TurnEvent
from quality.turns import events, live
from tenants.models import Membership, Role, Scope
from tenants.scope import tenant_scope
from tenants.tokens import revoke_token
from tests import environment
from tests.service import Service
from tests.turns.conftest import PATIENCE_S, Lab, eventually

pytestmark = pytest.mark.slow


class Stream:
    """An event stream that is read in a thread. `seen` holds (id, event) as they come."""

    def __init__(self, service: Service, token: str, turn_id: int, *, last: int | None = None) -> None:
        headers = {"Authorization": f"Bearer {token}", "Accept": "text/event-stream"}
        if last is not None:
            headers["Last-Event-ID"] = str(last)
        request = urllib.request.Request(f"{service.url}/api/turns/{turn_id}/events", headers=headers)
        self.response = urllib.request.urlopen(request, timeout=30)
        self.seen: list[tuple[int, dict]] = []
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        with self.response:
            number = 0
            for line in self.response:
                if line.startswith(b"id: "):
                    number = int(line[4:])
                elif line.startswith(b"data: "):
                    self.seen.append((number, json.loads(line[6:])))

    def ends(self) -> list[dict]:
        self.thread.join(20)
        assert not self.thread.is_alive()
        return [event for _, event in self.seen]


@pytest.fixture
def streams(live_service: Service, api) -> Callable[..., Stream]:
    token = api("read").text
    return lambda turn, **more: Stream(live_service, token, turn.pk, **more)


def test_a_turn_is_followed_to_its_end_with_an_approval_in_the_middle(lab: Lab, streams) -> None:
    from quality.models import DecisionKind, ToolCall
    from quality.turns.decide import Verdict, decide

    turn = lab.turn("text_and_call,plain_text", "approve")
    stream = streams(turn)
    lab.worker()
    eventually(lambda: any(event.get("state") == "awaiting" for _, event in stream.seen))
    with tenant_scope(lab.tenant):
        decide(turn.pk, [Verdict(ToolCall.objects.get(turn=turn).pk, DecisionKind.APPROVE)])
    told = stream.ends()
    assert [event["state"] for event in told if event["type"] == "tool_call"] == [
        "streaming", "pending", "running", "result",
    ]  # fmt: skip
    assert [event["type"] for event in told].count("assistant_end") == 1
    assert told[-1]["type"] == "assistant_end"
    assert [(event["name"], event["decision"]) for event in told if event["type"] == "tool_decision"] == [
        ("send_note", "approve")
    ]
    assert [number for number, _ in stream.seen] == list(range(1, len(told) + 1))
    said = "".join(event["text"] for event in told if event["type"] == "assistant_delta")
    assert said == "I will look that up." + told[-1]["content"]


def test_a_stream_that_broke_off_goes_on_behind_the_last_event(lab: Lab, streams) -> None:
    turn = lab.turn()
    lab.worker()
    lab.rests(turn)
    whole = streams(turn)
    whole.ends()
    rest = streams(turn, last=2)
    rest.ends()
    assert rest.seen == whole.seen[2:]


def test_after_the_end_there_is_nothing_and_a_browser_stops_asking(lab: Lab, streams) -> None:
    turn = lab.turn()
    lab.worker()
    last = lab.rests(turn).last_seq
    stream = streams(turn, last=last)
    assert stream.ends() == []
    assert stream.response.status == 204


def test_of_a_turn_whose_events_are_deleted_the_calls_and_the_end_are_told(lab: Lab, streams) -> None:
    turn = lab.turn()
    lab.worker()
    lab.rests(turn)
    with tenant_scope(lab.tenant):
        TurnEvent.objects.update(created_at="2026-01-01T00:00Z")
    assert events.delete_old() > 4
    with tenant_scope(lab.tenant):
        assert not TurnEvent.objects.exists()
    told = streams(turn).ends()
    assert [event["type"] for event in told] == ["tool_call", "assistant_end"]
    assert (told[0]["state"], told[1]["endReason"]) == ("result", "answered")


def test_a_turn_that_ends_while_its_events_are_read_loses_none_of_them(lab: Lab) -> None:
    turn = lab.turn()
    is_first = True

    def end_it_after_the_first_look(execute: Any, sql: str, *more: Any) -> Any:
        nonlocal is_first
        result = execute(sql, *more)
        if is_first and "turn_events" in sql:
            is_first = False
            lab.worker()
            with ThreadPoolExecutor(1) as aside:
                aside.submit(lab.rests, turn).result()
        return result

    with connection.execute_wrapper(end_it_after_the_first_look), tenant_scope(lab.tenant):
        told = events.read(turn.pk, 0)
    assert not is_first
    assert [one.seq for one in told] == list(range(1, len(told) + 1))
    assert "assistant_delta" in [one.type for one in told]


def test_who_may_not_see_the_turn_sees_no_event(lab: Lab, streams, other_tenant) -> None:
    theirs = lab.turn(tenant=other_tenant)
    with pytest.raises(urllib.error.HTTPError) as refused:
        streams(theirs)
    assert refused.value.code == 404
    refused.value.close()


def test_a_stream_ends_when_its_token_does(lab: Lab, api, monkeypatch) -> None:
    monkeypatch.setattr(live, "RECHECK_S", 0.1)
    client = api("read")
    turn = lab.turn()  # with no worker: nothing ever rings
    asked: list[bool] = []

    def still_allowed() -> bool:
        asked.append(still_has(client.headers["Authorization"], Scope.READ))
        return asked[-1]

    def revoke() -> None:
        with tenant_scope(lab.tenant):
            revoke_token(token=client.token, actor=client.user)
        connection.close()

    async def watch() -> None:
        async for told in live.follow(lab.tenant.pk, turn.pk, still_allowed=still_allowed):
            assert told is None
            if asked == [True, True]:
                await asyncio.to_thread(revoke)

    asyncio.run(asyncio.wait_for(watch(), PATIENCE_S))
    assert asked[-1] is False
    assert set(asked[:-1]) == {True}


def test_a_token_is_judged_anew_by_scope_and_by_its_makers_role(lab: Lab, api) -> None:
    client = api("read", "turns:write")
    header = client.headers["Authorization"]
    assert still_has(header, Scope.TURNS_WRITE)
    assert not still_has(header, Scope.EXPORT_READ)
    assert not still_has(header + "x", Scope.READ)
    with tenant_scope(lab.tenant):
        Membership.objects.filter(pk=client.member.pk).update(role=Role.VIEWER)
    assert still_has(header, Scope.READ)
    assert not still_has(header, Scope.TURNS_WRITE)


def test_many_streams_of_a_process_listen_on_one_connection(lab: Lab, streams) -> None:
    turn = lab.turn()
    watching = [streams(turn) for _ in range(40)]
    url = psycopg.conninfo.make_conninfo(environment.ADMIN_URL, dbname=environment.DATABASE)
    with psycopg.connect(url, autocommit=True) as admin:

        def listening() -> int:
            found = admin.execute(
                "SELECT count(*) FROM pg_stat_activity "
                "WHERE datname = current_database() AND query LIKE 'LISTEN turn_events%'"
            ).fetchone()
            assert found
            return found[0]

        eventually(lambda: listening() > 0)
        assert listening() == 1
        lab.worker()
        told = [stream.ends() for stream in watching]
        assert listening() == 1
    assert all(events == told[0] for events in told)
