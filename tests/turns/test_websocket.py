"""`/ws` from a real server, spoken to as any client would: who may connect, what is told, what a bad message gets."""

import http.client
import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore
from django.db import connection
from websockets.exceptions import InvalidStatus

from engine.providers import wire
from engine.providers.wire import TEXT_CALLS, Completion
from quality.models import Channel, TurnRun
from quality.websocket import messages
from tenants.access import remove_member
from tenants.models import Membership, Role, User
from tenants.scope import tenant_scope
from tenants.sessions import SIGNED_IN_AT
from tenants.tokens import revoke_token
from tests import environment
from tests.service import Service, running_service
from tests.turns.conftest import PATIENCE_S, Lab, eventually
from tests.turns.lines import Line, dialled

pytestmark = pytest.mark.slow

MARKED = [form for form in TEXT_CALLS if form not in ("bare", "fenced", "pythonic")]  # those are calls only alone


def refusal(service: Service, path: str = "/ws", **options: Any) -> tuple[int, str]:
    """Status and problem that a handshake gets."""
    with pytest.raises(InvalidStatus) as refused, dialled(service, path, **options):
        pass
    answer = refused.value.response
    body = json.loads(answer.body) if answer.body else {"type": ":"}
    return answer.status_code, body["type"].rpartition(":")[2]


@pytest.fixture
def line(lab: Lab, live_service: Service, api) -> Iterator[Line]:
    """A connection with a token that may send, and a worker to run what is sent."""
    lab.worker()
    with dialled(live_service, additional_headers=api("turns:write", "read").headers) as line:
        yield line


@pytest.fixture
def session(live_service: Service) -> Callable[[User], dict[str, str]]:
    """The cookie header of somebody who has signed in."""

    def sign_in(user: User) -> dict[str, str]:
        store = SessionStore()
        store[SIGNED_IN_AT] = int(time.time())
        store[SESSION_KEY] = str(user.pk)
        store[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[0]
        store[HASH_SESSION_KEY] = user.get_session_auth_hash()
        store.save()
        return {"Cookie": f"{settings.SESSION_COOKIE_NAME}={store.session_key}"}

    return sign_in


def ours(service: Service) -> Any:
    return f"http://127.0.0.1:{service.port}"


# --- a turn ----------------------------------------------------------------------------------------------------------


def test_a_message_is_answered_by_its_call_and_then_its_end(line: Line, lab: Lab) -> None:
    line.send(type="user_text", text="Weather in Rome?", model="text_and_call,plain_text", styleId="safe")
    queued = line.next()
    assert (queued["type"], queued["state"]) == ("turn_state", "queued")
    told = line.end(queued["turnId"])
    types = [one["type"] for one in told]
    assert types.index("tool_call") < types.index("assistant_end") == len(types) - 1
    calls = [one for one in told if one["type"] == "tool_call"]
    assert [one["state"] for one in calls] == ["streaming", "running", "result"]
    assert (calls[-1]["name"], calls[-1]["arguments"]) == ("get_weather", {"city": "Rome"})
    assert calls[-1]["callId"]
    said = "".join(one["text"] for one in told if one["type"] == "assistant_delta")
    assert said == "I will look that up." + told[-1]["content"]
    assert [one["eventId"] for one in told[1:]] == list(range(1, len(told)))
    with tenant_scope(lab.tenant):
        run = TurnRun.objects.get()
    assert (run.channel, run.turn_id) == (Channel.WEBSOCKET, queued["turnId"])
    assert run.token_id is not None


def test_what_is_told_is_what_an_event_stream_tells(line: Line, live_service: Service) -> None:
    turn = line.say()
    told = line.end(turn)[1:]
    http = http_get(live_service, f"/api/turns/{turn}/events", authorization(line))
    stream = [json.loads(part[6:]) for part in http.splitlines() if part.startswith("data: ")]
    own = ("turnId", "eventId")
    assert [{name: value for name, value in one.items() if name not in own} for one in told] == stream


def authorization(line: Line) -> str:
    assert line.connection.request is not None
    return line.connection.request.headers["Authorization"]


def http_get(service: Service, path: str, token: str) -> str:
    line = http.client.HTTPConnection("127.0.0.1", service.port, timeout=PATIENCE_S)
    line.request("GET", path, headers={"Authorization": token})
    text = line.getresponse().read().decode()
    line.close()
    return text


def test_a_connection_is_one_conversation(line: Line, lab: Lab) -> None:
    first = line.say("One.", script="plain_text", tools="")
    line.end(first)
    second = line.say("Two.", script="plain_text", tools="")
    line.end(second)
    named = {one["conversationId"] for one in line.seen if one.get("state") == "queued"}
    assert len(named) == 1
    asked = [message["content"] for message in lab.model.asked[-1].messages if message["role"] == "user"]
    assert asked == ["One.", "Two."]
    line.send(type="user_text", text="Three.", conversationId="another")
    assert line.until(type="error")["code"] == "other_conversation"


def test_messages_sent_at_once_are_answered_in_their_order(line: Line, lab: Lab) -> None:
    turns = [line.say(f"Number {number}.", script="plain_text", tools="") for number in range(3)]
    for turn in turns:
        line.end(turn)
    # Each turn is told by a follower of its own: what is told of two turns may cross, the turns may not.
    with tenant_scope(lab.tenant):
        assert list(TurnRun.objects.order_by("finished_at").values_list("turn_id", flat=True)) == turns
    asked = [[message["content"] for message in ask.messages if message["role"] == "user"] for ask in lab.model.asked]
    assert asked[-1] == ["Number 0.", "Number 1.", "Number 2."]


def test_the_same_message_sent_again_after_a_break_is_the_same_turn(line: Line, live_service: Service, lab) -> None:
    names = {"externalId": "e-1", "conversationId": "c-1"}
    turn = line.say(**names)
    whole = line.end(turn)
    with dialled(live_service, additional_headers={"Authorization": authorization(line)}) as again:
        assert again.say(**names) == turn
        assert again.end(turn)[1:] == whole[1:]
        again.send(type="user_text", text="Something else.", **names)
        assert again.until(type="error")["code"] == "conflict"
    with tenant_scope(lab.tenant):
        assert TurnRun.objects.count() == 1


def test_a_call_is_approved_and_a_turn_called_off(line: Line, lab: Lab) -> None:
    turn = line.say(tools="approve")
    call = line.until(type="tool_call", state="pending")
    line.until(type="turn_state", state="awaiting")
    line.send(type="tool_result", results=[{"callId": "nothing", "decision": "approve"}])
    assert line.until(type="error")["code"] == "no_such_call"
    line.send(type="tool_result", results=[{"callId": call["callId"], "decision": "approve"}])
    told = line.end(turn)
    assert [one["state"] for one in told if one["type"] == "tool_call"] == ["streaming", "pending", "running", "result"]
    assert lab.tools.count() == 1
    other = line.say("Again?", tools="approve")
    line.until(type="turn_state", state="awaiting", turnId=other)
    line.send(type="cancel")
    assert line.end(other)[-1]["endReason"] == "cancelled"


def test_a_turn_goes_on_without_its_connection_and_is_taken_up_by_another(lab: Lab, live_service, api) -> None:
    headers = api("turns:write", "read").headers
    with dialled(live_service, additional_headers=headers) as line:
        turn = line.say()
    lab.worker()
    with dialled(live_service, additional_headers=headers) as line:
        line.send(type="follow", turnId=turn)
        whole = line.end(turn)
        assert whole[0]["eventId"] == 1
        line.send(type="follow", turnId=turn, after=2)
        line.until(type="assistant_end")
        assert line.seen[len(whole) :] == whole[2:]
        line.send(type="follow", turnId=turn, after=len(whole))
        assert line.next() == {"type": "turn_state", "state": "done", "turnId": turn}


@pytest.mark.parametrize("words", ["", "I", "Hm", "Let me look that up. "])
def test_no_markup_of_a_call_is_ever_in_a_delta(line: Line, lab: Lab, words: str) -> None:
    """Calls written as text, in pieces of three characters: each beginning moves the cuts to other places."""
    for form in TEXT_CALLS if not words else MARKED:
        written = words + wire.text_call(form, "get_weather", {"city": "Rome"})
        lab.model._script.extend([Completion(written), "plain_text"])
        told = line.end(line.say(f"Weather in Rome, {form}?"))
        said = "".join(one["text"] for one in told if one["type"] == "assistant_delta")
        assert said.removeprefix(words).strip() == told[-1]["content"], form
        calls = [one for one in told if one["type"] == "tool_call"]
        assert (calls[-1]["name"], calls[-1]["state"]) == ("get_weather", "result"), form
        assert calls[-1]["arguments"] == {"city": "Rome"}, form


# --- bad messages ----------------------------------------------------------------------------------------------------


def test_a_bad_message_is_told_and_the_connection_goes_on(line: Line) -> None:
    for message, code, path in [
        ("not JSON", "malformed_json", ""),
        ('{"type": "user_text", "text": "a", "text": "b"}', "duplicate_key", "text"),
        ("[]", "not_an_object", ""),
        ("{}", "unknown_type", "type"),
        ('{"type": ["user_text"]}', "unknown_type", "type"),
        ('{"type": "no_such_thing"}', "unknown_type", "type"),
        ('{"type": "user_text"}', "required", "text"),
        ('{"type": "user_text", "text": " "}', "blank", "text"),
        ('{"type": "user_text", "text": {}}', "invalid", "text"),
        ('{"type": "user_text", "text": "hi", "colour": 1}', "unknown_member", "colour"),
        ('{"type": "cancel"}', "required", "turnId"),
        ('{"type": "follow", "turnId": 999999}', "not_found", None),
        ('{"type": "cancel", "turnId": 999999}', "not_found", None),
        ('{"type": "tool_result", "turnId": 999999, "results": []}', "not_found", None),
        (b"\x00\x01", "binary", ""),
        ("x" * (messages.MAX_BYTES + 1), "too_large", ""),
        (json.dumps({"type": "user_text", "text": "x" * 200_000}), "too_long", "text"),
    ]:
        line.connection.send(message)
        told = line.next()
        assert (told["type"], told["code"]) == ("error", code), (message[:60], told)
        assert told["message"]
        assert [error["path"] for error in told["errors"]] == ([] if path is None else [path]), message[:60]
    line.send(type="ping")
    assert line.next() == {"type": "pong"}
    line.end(line.say())


def test_a_connection_follows_so_many_turns_and_no_more(live_service: Service, lab: Lab, api) -> None:
    with dialled(live_service, additional_headers=api("turns:write").headers) as line:  # no worker: none of them ends
        for number in range(20):
            line.say(f"Number {number}.")
        line.send(type="user_text", text="One more.")
        assert line.until(type="error")["code"] == "too_many_turns"


# --- who may connect -------------------------------------------------------------------------------------------------


def test_without_a_token_or_session_nobody_connects(lab: Lab, live_service: Service, api) -> None:
    assert refusal(live_service) == (401, "not_authenticated")
    assert refusal(live_service, additional_headers={"Authorization": "Bearer qlab_x"}) == (401, "invalid_token")
    assert refusal(live_service, additional_headers=api("ingest:write").headers) == (403, "insufficient_scope")
    assert refusal(live_service, "/ws/other", additional_headers=api().headers)[0] == 403


def test_a_host_that_is_not_ours_is_refused(lab: Lab, live_service: Service, api) -> None:
    headers = api().headers
    with socket.create_connection(("127.0.0.1", live_service.port), PATIENCE_S) as raw:
        lines = [
            "GET /ws HTTP/1.1", "Host: evil.example", "Upgrade: websocket", "Connection: Upgrade",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13",
            f"Authorization: {headers['Authorization']}", "", "",
        ]  # fmt: skip
        raw.sendall("\r\n".join(lines).encode())
        assert b" 400 " in raw.recv(100)


def test_a_reader_follows_and_sends_nothing(lab: Lab, live_service: Service, api) -> None:
    turn = lab.turn()
    lab.worker()
    with dialled(live_service, additional_headers=api("read").headers) as line:
        line.send(type="user_text", text="Hello?")
        assert line.next()["code"] == "permission_denied"
        line.send(type="cancel", turnId=turn.pk)
        assert line.next()["code"] == "permission_denied"
        line.send(type="follow", turnId=turn.pk)
        assert line.end(turn.pk)[-1]["endReason"] == "answered"
    with tenant_scope(lab.tenant):
        assert TurnRun.objects.count() == 1


def test_who_may_only_send_follows_what_they_sent(lab: Lab, live_service: Service, api) -> None:
    theirs = lab.turn()
    lab.worker()
    with dialled(live_service, additional_headers=api("turns:write").headers) as line:
        line.end(line.say())
        line.send(type="follow", turnId=theirs.pk)
        assert line.until(type="error")["code"] == "insufficient_scope"


def test_turns_of_another_tenant_do_not_exist(lab: Lab, line: Line, other_tenant) -> None:
    theirs = lab.turn(tenant=other_tenant)
    for message in ({"type": "follow"}, {"type": "cancel"}, {"type": "tool_result", "results": []}):
        line.send(**message, turnId=theirs.pk)
        assert line.next()["code"] == "not_found"


def test_a_member_who_signed_in_connects_from_a_page_of_ours_alone(
    lab: Lab, live_service: Service, member, session, other_tenant
) -> None:
    operator = member()
    cookie = session(operator.user)
    lab.worker()
    for origin in (None, "http://evil.example", "null", f"http://127.0.0.1:{live_service.port + 1}"):
        status, _ = refusal(live_service, "/ws?tenant=acme", additional_headers=cookie, origin=origin)
        assert status == 403, origin
    page = ours(live_service)
    assert refusal(live_service, "/ws?tenant=globex", additional_headers=cookie, origin=page) == (403, "no_membership")
    with dialled(live_service, additional_headers=cookie, origin=page) as line:  # of one tenant: it needs no name
        line.end(line.say())
    with tenant_scope(lab.tenant):
        assert TurnRun.objects.get().created_by == operator.user
    member(tenant=other_tenant, user=operator.user)
    assert refusal(live_service, additional_headers=cookie, origin=page) == (400, "tenant_needed")
    with dialled(live_service, "/ws?tenant=globex", additional_headers=cookie, origin=page):
        pass
    viewer = session(member(Role.VIEWER).user)
    with dialled(live_service, additional_headers=viewer, origin=page) as line:
        line.send(type="user_text", text="Hello?")
        assert line.next()["code"] == "permission_denied"


def test_who_loses_the_right_is_shut_out_before_the_next_message(
    lab: Lab, live_service: Service, member, session, api
) -> None:
    page = ours(live_service)
    lowered, removed, signed_out = member(), member(), member()
    cookies = [session(one.user) for one in (lowered, removed, signed_out)]
    client = api("turns:write")
    with (
        dialled(live_service, additional_headers=cookies[0], origin=page) as first,
        dialled(live_service, additional_headers=cookies[1], origin=page) as second,
        dialled(live_service, additional_headers=cookies[2], origin=page) as third,
        dialled(live_service, additional_headers=client.headers) as fourth,
    ):
        with tenant_scope(lab.tenant):
            Membership.objects.filter(pk=lowered.pk).update(role=Role.VIEWER)
            remove_member(membership=removed, actor=client.user)
            revoke_token(token=client.token, actor=client.user)
        SessionStore(cookies[2]["Cookie"].partition("=")[2]).delete()
        connection.close()
        for line, code in ((first, 4403), (second, 4403), (third, 4401), (fourth, 4401)):
            line.send(type="user_text", text="Still here?")
            assert line.closed() == code
    with tenant_scope(lab.tenant):
        assert not TurnRun.objects.exists()


def test_who_loses_the_right_is_shut_out_although_nothing_is_sent(lab: Lab, live_service: Service, api) -> None:
    client = api("turns:write", "read")
    turn = lab.turn()  # with no worker: nothing is told of it
    with (
        dialled(live_service, additional_headers=client.headers) as idle,
        dialled(live_service, additional_headers=client.headers) as watching,
    ):
        watching.send(type="follow", turnId=turn.pk)
        with tenant_scope(lab.tenant):
            revoke_token(token=client.token, actor=client.user)
        connection.close()
        assert {idle.closed(), watching.closed()} == {4401}


# --- the demo's own machine ------------------------------------------------------------------------------------------


@pytest.fixture
def demo_service(lab: Lab, collected_static, tmp_path, monkeypatch) -> Iterator[Service]:
    monkeypatch.setenv("DEMO_ON_LOOPBACK", "true")
    with running_service(tmp_path) as service:
        yield service


def test_the_demo_is_open_on_its_own_machine_and_to_nobody_else(
    demo_service: Service, live_service: Service, lab: Lab, tenant, member
) -> None:
    assert refusal(demo_service) == (401, "not_authenticated")  # there is no demo
    operator = member()
    type(tenant).objects.filter(pk=tenant.pk).update(slug="demo")
    assert refusal(demo_service) == (401, "not_authenticated")  # the tenant of this name is none
    with tenant_scope(tenant):
        type(tenant).objects.filter(pk=tenant.pk).update(is_demo=True, slug="demo")
    lab.worker()
    with dialled(demo_service) as line:
        line.end(line.say())
    with tenant_scope(tenant):
        assert TurnRun.objects.get().created_by == operator.user
    with dialled(demo_service, origin=ours(demo_service)):
        pass
    assert refusal(demo_service, origin="http://evil.example")[0] == 403
    for header in ("X-Forwarded-For", "Forwarded", "X-Real-IP"):
        assert refusal(demo_service, additional_headers={header: "192.0.2.1"})[0] == 401, header
    assert refusal(demo_service, additional_headers={"Authorization": "Bearer qlab_x"})[0] == 401
    assert refusal(live_service)[0] == 401  # not switched on


# --- many ------------------------------------------------------------------------------------------------------------


def listeners() -> set[int]:
    """The server processes of connections that listen for live events."""
    url = psycopg.conninfo.make_conninfo(environment.ADMIN_URL, dbname=environment.DATABASE)
    with psycopg.connect(url) as admin:
        found = admin.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN turn_events%'"
        )
        return {pid for (pid,) in found}


def test_many_connections_of_a_process_listen_on_one_connection(lab: Lab, live_service: Service, api) -> None:
    headers = api("read").headers
    turn = lab.turn()
    with ExitStack() as open_lines:
        lines = [open_lines.enter_context(dialled(live_service, additional_headers=headers)) for _ in range(40)]
        for line in lines:
            line.send(type="follow", turnId=turn.pk)
            line.send(type="ping")
            line.until(type="pong")
        assert len(listeners()) == 1
        lab.worker()
        told = [line.end(turn.pk) for line in lines]
    assert all(events == told[0] for events in told)


def test_a_listening_connection_that_was_cut_is_made_anew(lab: Lab, live_service: Service, api) -> None:
    turn = lab.turn()
    with dialled(live_service, additional_headers=api("read").headers) as line:
        line.send(type="follow", turnId=turn.pk)
        eventually(lambda: len(listeners()) == 1)
        cut = listeners()
        with psycopg.connect(environment.ADMIN_URL) as admin:
            admin.execute("SELECT pg_terminate_backend(%s)", list(cut))
        eventually(lambda: bool(listeners() - cut))
        lab.worker()
        assert line.end(turn.pk)[-1]["endReason"] == "answered"
