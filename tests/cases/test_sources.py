"""Cases from a running service: page by page, checked, and with errors that say what to do."""

import asyncio
import json
import socket
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from engine.providers.retry import RetryPolicy
from quality.cases.record import CaseFile
from quality.cases.sources import EXPORT, Service, SourceError
from tenants.models import Tenant
from tenants.scope import tenant_scope
from tests.api.client import Api
from tests.cases.suite import made, playing, run
from tests.cases.test_record import export
from tests.engine.loopback import Answer, Server, serving
from tests.factories import CaseFactory
from tests.service import Service as Live

AT_ONCE = RetryPolicy(tries=3, base_s=0.001, cap_s=0.002)


def page(*numbers: int, cursor: str | None = None) -> Answer:
    return Answer(body=b"".join(export(*(made(number) for number in numbers), nextCursor=cursor)))


def fetched(server: Server, **query: object) -> CaseFile:
    return asyncio.run(Service(f"http://127.0.0.1:{server.port}/", "t0ken", retry=AT_ONCE).cases(**query))  # type: ignore[arg-type]


def test_all_pages_are_read() -> None:
    with serving(page(1, 2, cursor="a b&c"), page(3, 4, cursor="d"), page(5)) as server:
        found = fetched(server, status="active", limit=2)
    assert [(case.id, case.line) for case in found.cases] == [(f"REG-{n}", n) for n in range(1, 6)]
    assert (found.complete, found.faults) == (True, [])
    queries = [parse_qs(urlsplit(seen.target).query) for seen in server.seen]
    assert queries[0] == {"status": ["active"], "limit": ["2"]}
    assert [query.get("cursor") for query in queries] == [None, ["a b&c"], ["d"]]
    assert all(urlsplit(seen.target).path == EXPORT for seen in server.seen)
    assert all(seen.header("authorization") == "Bearer t0ken" for seen in server.seen)


def test_a_page_that_is_cut_is_told_and_nothing_is_read_behind_it() -> None:
    cut = Answer(body=page(3, 4, cursor="d").body.rpartition(b'{"recordType": "_end"')[0])
    with serving(page(1, 2, cursor="a"), cut, page(5)) as server:
        found = fetched(server)
    assert [(fault.code, fault.line) for fault in found.faults] == [("no_end", 4)]
    assert not found.complete
    assert len(server.seen) == 2


def test_a_cursor_that_goes_round_is_refused() -> None:
    with (
        serving(page(1, cursor="a"), page(2, cursor="a")) as server,
        pytest.raises(SourceError, match="round in circles"),
    ):
        fetched(server)


def test_a_busy_service_is_asked_again() -> None:
    busy = Answer(status=503, headers={"Retry-After": "0"}, body=b"{}")
    with serving(busy, Answer(status=429, body=b"{}"), page(1)) as server:
        assert len(fetched(server).cases) == 1
    with serving(busy) as server, pytest.raises(SourceError, match="503"):
        fetched(server)
    assert len(server.seen) == 3


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer(status=401), "QUALITY_LAB_TOKEN"),
        (Answer(status=403), "export:read"),
        (Answer(status=404), "--api-base"),
        (Answer(status=302, headers={"Location": "http://127.0.0.1:1/"}), "302"),
        (Answer(status=400, body=b'{"detail": "Unknown parameter t0ken."}'), "Unknown parameter"),
        (Answer(send=lambda handler: handler.connection.shutdown(socket.SHUT_RDWR)), "cannot be read"),
    ],
)
def test_what_a_service_refuses_says_what_to_do(answer: Answer, words: str) -> None:
    with serving(answer) as server, pytest.raises(SourceError, match=words) as raised:
        fetched(server)
    assert "t0ken" not in str(raised.value)


@pytest.mark.parametrize("base", ["", "lab", "ftp://x", "http://a b", "http://user:pw@127.0.0.1"])
def test_an_address_that_is_none_is_told(base: str) -> None:
    with pytest.raises(SourceError, match="no address"):
        asyncio.run(Service(base, "t").cases())


def test_a_style_is_tried(tmp_path: Path) -> None:
    style = {"styleId": "brief", "systemPrompt": "Be brief.", "examples": [{"user": "Hi", "assistant": "Hello."}]}
    styles = Answer(body=json.dumps({"styles": [style]}).encode())
    with serving(page(1), styles) as server, playing() as play:
        command = ["--api-base", f"http://127.0.0.1:{server.port}", "--replay", "--base-url", play.base_url]
        ran = run(*command, "--model", "choose", "--style", "brief", env={"QUALITY_LAB_TOKEN": "t0ken"})
        assert ran.returncode == 0, ran.stdout + ran.stderr
        prompt = play.bodies[0]["messages"][0]["content"]
    assert prompt == "Be brief.\n\nExamples of good answers:\n\nUser: Hi\nAssistant: Hello."
    with serving(page(1), styles) as server:
        command[1] = f"http://127.0.0.1:{server.port}"
        ran = run(*command, "--model", "m", "--style", "long", "--token", "t0ken")
    assert (ran.returncode, "There are: brief." in ran.stderr) == (2, True)


@pytest.mark.slow
def test_the_service_gives_cases_to_the_command(
    live_service: Live, tenant: Tenant, other_tenant: Tenant, api: Callable[..., Api], tmp_path: Path
) -> None:
    with tenant_scope(tenant):
        for _ in range(5):
            CaseFactory()
        CaseFactory(status="archived")
    with tenant_scope(other_tenant):
        CaseFactory()
    env = {"QUALITY_LAB_TOKEN": api("export:read").text}
    command = ["--api-base", live_service.url, "--limit", 2]
    ran = run(*command, env=env)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "All cases are valid. 5 passed." in ran.stdout
    assert "6 passed" in run(*command, "--status", "all", "--include-archived", env=env).stdout
    with playing() as play:
        ran = run(*command, "--replay", "--base-url", play.base_url, "--model", "choose", env=env)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "5 passed" in ran.stdout
    assert run(*command, env={"QUALITY_LAB_TOKEN": api("read").text}).returncode == 2
