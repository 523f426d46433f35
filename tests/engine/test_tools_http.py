"""HTTP tools against real servers: what is sent, what the model reads, and what no one must see."""

import asyncio
import base64
import json
import time
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import net
from engine.redaction import Redactor
from engine.text import TRUNCATED
from engine.tools import Mode, Registry, Safety, ToolContext, ToolOutcome
from engine.tools.definitions import HttpDefinition
from engine.tools.http import HttpTool, build_request
from tests.engine.loopback import Answer, Seen, Server, serving

ANYTHING = {"type": "object", "additionalProperties": True}


def tool(server: Server, path: str = "/x", **members: Any) -> HttpTool:
    policy = net.Policy.tenant(allow_cidrs=["127.0.0.1/32"], allow_ports=[server.port])
    item = {
        "name": "t",
        "description": "d",
        "url": f"http://127.0.0.1:{server.port}{path}",
        "parameters": ANYTHING,
        **members,
    }
    return HttpTool(HttpDefinition.from_json(item), net.Guard(policy))


def run(one: HttpTool, arguments: dict[str, Any] | None = None, **context: Any) -> ToolOutcome:
    return asyncio.run(Registry([one]).run("t", arguments or {}, ToolContext(**context)))


def sent(path: str, arguments: dict[str, Any], **members: Any) -> Seen:
    with serving() as server:
        assert run(tool(server, path, **members), arguments).text == "ok"
    return server.seen[0]


def outcome_of(answer: Answer, **context: Any) -> ToolOutcome:
    with serving(answer) as server:
        return run(tool(server), **context)


@pytest.mark.parametrize("method", ["POST", "post", "PUT", "patch", "PROPFIND", "X-PURGE"])
def test_other_arguments_are_the_json_body(method: str) -> None:
    seen = sent("/c/{id}?v={v}", {"id": 7, "v": "a b", "name": "Zoë", "tags": [1, None]}, method=method)

    assert (seen.method, seen.target) == (method.upper(), "/c/7?v=a%20b")
    assert json.loads(seen.body) == {"name": "Zoë", "tags": [1, None]}
    assert seen.header("content-type") == "application/json"


@pytest.mark.parametrize("method", ["POST", "PATCH", "BREW"])
def test_a_body_without_arguments_is_an_empty_object(method: str) -> None:
    assert sent("/c/{id}", {"id": 7}, method=method).body == b"{}"


def test_a_definition_without_a_method_posts() -> None:
    assert sent("/", {}).method == "POST"


@pytest.mark.parametrize("method", ["GET", "OPTIONS", "TRACE", "delete"])
def test_other_arguments_are_the_query_where_there_is_no_body(method: str) -> None:
    arguments = {"id": 7, "q": "a&b=c#d", "n": 1.5, "yes": True, "list": ["x", 2], "no": None, "o": {"k": "é"}, "ä": 1}
    seen = sent("/c/{id}?fix=1", arguments, method=method)

    query = "fix=1&q=a%26b%3Dc%23d&n=1.5&yes=true&list=x&list=2&o=%7B%22k%22%3A%22%C3%A9%22%7D&%C3%A4=1"
    assert seen.target == f"/c/7?{query}"
    assert seen.body == b""
    assert seen.header("content-type") is None


def test_a_query_begins_where_the_url_has_none() -> None:
    assert sent("/c", {"q": 1}, method="GET").target == "/c?q=1"


def test_header_placeholders_are_filled_and_the_argument_stays_in_the_body() -> None:
    seen = sent(
        "/", {"who": "José", "n": 5}, headers={"X-Who": "by {who}, {n}", "Content-Type": "application/vnd.x+json"}
    )

    assert (seen.header("x-who") or "").encode("latin-1").decode() == "by José, 5"
    assert seen.header("content-type") == "application/vnd.x+json"
    assert json.loads(seen.body) == {"who": "José", "n": 5}


def test_an_unsafe_call_carries_its_idempotency_key_and_a_safe_one_does_not() -> None:
    with serving() as server:
        run(tool(server, method="POST"), idempotency_key="turn:0:1")
        run(tool(server, method="GET"), idempotency_key="turn:0:1")
        run(tool(server, method="POST", headers={"idempotency-key": "own"}), idempotency_key="turn:0:1")

    assert [seen.header("idempotency-key") for seen in server.seen] == ["turn:0:1", None, "own"]


@given(
    st.dictionaries(
        st.text(max_size=5),
        st.text(max_size=9) | st.integers() | st.floats() | st.lists(st.text(max_size=3)) | st.none(),
    )
)
def test_any_arguments_make_a_request_or_a_refusal(arguments: dict[str, Any]) -> None:
    for method in ("GET", "POST"):
        definition = HttpDefinition("t", "d", "https://a.example/x", method)
        try:
            request = build_request(definition, arguments, str)
        except net.Refused:
            continue
        assert request.url.target.isascii()
        assert request.url.target.partition("?")[0] == "/x"


@pytest.mark.parametrize("verb", ["GE t", "GET\r\nX: 1", "", "connect", "G(T"])
def test_a_verb_that_cannot_be_sent_is_named(verb: str) -> None:
    with serving() as server:
        outcome = run(tool(server, method=verb))

    assert outcome.text == f"Error: invalid HTTP method '{verb}' for tool 't'"
    assert server.seen == []


def test_a_result_is_the_body() -> None:
    outcome = outcome_of(Answer(201, '{"ok": "é"}'.encode()))

    assert (outcome.text, outcome.result, outcome.is_error, outcome.error) == (
        '{"ok": "é"}',
        '{"ok": "é"}',
        False,
        None,
    )
    assert outcome.details["status"] == 201


def test_an_empty_success_is_its_status() -> None:
    assert outcome_of(Answer(204, b"")).text == "HTTP 204"
    with serving(Answer(200, b"not for HEAD")) as server:
        assert run(tool(server, method="HEAD")).text == "HTTP 200"


@pytest.mark.parametrize("status", [302, 400, 404, 500, 503])
def test_a_failure_is_its_status_and_its_body(status: int) -> None:
    outcome = outcome_of(Answer(status, b"no such patient"))

    assert outcome.text == f"Error: HTTP {status} — no such patient"
    assert (outcome.is_error, outcome.error, outcome.result) == (True, "http_status", "no such patient")


def test_long_results_are_cut_for_the_model_and_kept_whole() -> None:
    body = ("x" * 1999 + "e\u0301" + "y" * 3000).encode()
    good, bad = outcome_of(Answer(200, body)), outcome_of(Answer(500, body), result_limit=10)

    assert good.text == "x" * 1999 + TRUNCATED
    assert good.result == body.decode()
    assert bad.text == "Error: HTTP 500 — " + "x" * 10 + TRUNCATED


def test_other_charsets_are_shown_as_declared_and_kept_as_bytes() -> None:
    latin = "Café".encode("latin-1")
    outcome = outcome_of(Answer(body=latin, headers={"Content-Type": "text/plain; charset=ISO-8859-1"}))

    assert (outcome.text, outcome.encoding, outcome.charset) == ("Café", "base64", "iso-8859-1")
    assert base64.b64decode(outcome.result) == latin


@pytest.mark.parametrize(
    "charset", ["", "; charset=utf-8", "; charset=unicode_escape", "; charset=zlib", "; charset=\u00ff", "; charset"]
)
def test_a_server_cannot_choose_an_odd_codec(charset: str) -> None:
    outcome = outcome_of(Answer(body=b"\\x41\xff", headers={"Content-Type": f"text/plain{charset}"}))

    assert outcome.text == "\\x41\ufffd"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "$.pid: is missing, and the request needs it"),
        ({"pid": ""}, "$.pid: may not be empty, it is part of the path"),
        ({"pid": "../x"}, "$.pid: may not hold a slash or a backslash"),
        ({"pid": ["a"]}, "$.pid: must be a string, a number or a boolean"),
    ],
)
def test_a_value_that_does_not_fit_its_place_is_told_like_any_bad_argument(
    arguments: dict[str, Any], text: str
) -> None:
    with serving() as server:
        outcome = run(tool(server, "/p/{pid}/n"), arguments)

    assert outcome.text == f"Error: invalid arguments for tool 't': {text}"
    assert server.seen == []


def test_a_stored_definition_that_went_bad_is_refused_when_it_runs() -> None:
    for url in (
        "http://169.254.169.254/",
        "https://{host}/",
        "file:///etc/passwd",
        "nonsense",
        "https://a.example/{x.y}",
    ):
        definition = HttpDefinition("t", "d", url, "GET")
        outcome = run(HttpTool(definition, net.Guard(net.Policy.tenant())))
        assert outcome.text.startswith("Error: tool request failed: ")
        assert outcome.error in set(net.Code)
    bad_header = HttpDefinition("t", "d", "https://a.example/", headers={"Host": "inner.example"})
    assert run(HttpTool(bad_header, net.Guard(net.Policy.tenant()))).error == net.Code.INVALID_HEADER


def test_a_dead_server_is_told_by_its_code() -> None:
    with serving() as server:
        pass
    outcome = run(tool(server))

    assert outcome.text == "Error: tool request failed: connect_failed: the host did not take the connection"


def test_the_tools_deadline_is_kept_and_told() -> None:
    def slow(handler: BaseHTTPRequestHandler) -> None:
        time.sleep(2)

    started = time.monotonic()
    outcome = outcome_of(Answer(send=slow), deadline=started + 0.4)

    assert outcome.text == "Error: tool request failed: timed_out: no complete answer within the time limit"
    assert time.monotonic() - started < 0.8


def test_a_large_answer_is_told_by_its_code() -> None:
    assert outcome_of(Answer(body=bytes(net.MAX_BODY + 1))).error == net.Code.TOO_LARGE


def test_redirects_are_followed_only_where_the_definition_says_so() -> None:
    with serving(Answer(302, b"", {"Location": "/y"}), Answer(body=b"there")) as server:
        assert run(tool(server, method="GET")).text == "Error: HTTP 302 — "
    with serving(Answer(302, b"", {"Location": "/y"}), Answer(body=b"there")) as server:
        assert run(tool(server, method="GET", follow_redirects=True)).text == "there"


SECRET = 'canary/7 "f3"+ä'


@pytest.mark.parametrize("status", [200, 500])
def test_a_secret_reaches_the_server_and_nobody_else(status: int) -> None:
    def echo(handler: BaseHTTPRequestHandler) -> None:
        value = (handler.headers["x-key"] or "").encode("latin-1").decode()
        pair = base64.b64encode(f"u:{value}".encode()).decode()
        spelled = [
            value,
            json.dumps(value),
            base64.b64encode(value.encode()).decode(),
            handler.headers["authorization"],
        ]
        body = json.dumps({"echo": spelled, "pair": pair}).encode()
        handler.wfile.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n" % (status, len(body)) + body)

    headers = {"X-Key": "{secret:KEY}", "Authorization": "Bearer {secret:KEY}"}
    with serving(Answer(send=echo)) as server:
        outcome = run(tool(server, headers=headers), {"a": 1}, secrets={"KEY": SECRET}.get)

    assert (server.seen[0].header("x-key") or "").encode("latin-1").decode() == SECRET
    assert outcome.details["status"] == status
    seen = outcome.text + outcome.result + repr(outcome)
    assert "{secret:KEY}" in seen
    for spelling in (
        "canary",
        base64.b64encode(SECRET.encode()).decode(),
        base64.b64encode(f"u:{SECRET}".encode()).decode()[4:-4],
    ):
        assert spelling not in seen


def test_a_secret_in_a_body_of_another_charset_does_not_survive_in_the_bytes() -> None:
    answer = Answer(
        body=b"\xff\xfe" + SECRET.encode("utf-16-le"), headers={"Content-Type": "text/plain; charset=utf-16"}
    )
    outcome = outcome_of(answer, redactor=Redactor({"KEY": SECRET}))

    assert outcome.text == "{secret:KEY}"
    assert (outcome.result, outcome.encoding) == ("{secret:KEY}", "text")


def test_a_secret_is_gone_before_the_text_is_cut() -> None:
    body = b"x" * 1995 + b"canary-123456"
    outcome = outcome_of(Answer(body=body), redactor=Redactor({"KEY": "canary-123456"}))

    assert "canar" not in outcome.text


def test_an_argument_cannot_ask_for_a_secret() -> None:
    with serving() as server:
        run(tool(server, headers={"X-A": "{a}"}), {"a": "{secret:KEY}"}, secrets={"KEY": SECRET}.get)

    assert server.seen[0].header("x-a") == "{secret:KEY}"


def test_a_missing_secret_is_told_by_name_and_nothing_is_sent() -> None:
    with serving() as server:
        outcome = run(tool(server, headers={"X-A": "{secret:KEY}"}))

    assert outcome.error == net.Code.SECRET_MISSING
    assert "KEY" in outcome.text
    assert server.seen == []


def test_a_secret_that_breaks_the_header_is_refused_without_being_shown() -> None:
    with serving() as server:
        outcome = run(tool(server, headers={"X-A": "{secret:KEY}"}), secrets={"KEY": "canary\r\nX: 1"}.get)

    assert outcome.error == net.Code.INVALID_HEADER
    assert "canary" not in repr(outcome)


def test_arguments_that_nothing_declares_are_not_sent() -> None:
    with serving() as server:
        one = tool(server, "/{pid}", parameters={"type": "object", "properties": {"day": {}}})
        run(one, {"day": "x", "pid": "7", "__tenant_id": "2"})

    assert server.seen[0].target == "/7"
    assert json.loads(server.seen[0].body) == {"day": "x"}


def test_safety_and_mode_follow_the_verb_unless_they_are_said() -> None:
    def made(**members: Any) -> HttpDefinition:
        return HttpDefinition.from_json({"name": "t", "description": "d", "url": "https://a.example/", **members})

    assert made().safety is Safety.UNSAFE
    assert made(method="get").safety is Safety.SAFE
    assert made(method="DELETE").safety is Safety.UNSAFE
    assert made(method="PUT", safety="safe").safety is Safety.SAFE
    assert made().mode is Mode.AUTO
    assert made(mode="approve").mode is Mode.APPROVE
