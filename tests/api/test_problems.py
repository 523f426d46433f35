"""Every error under /api has one shape, and tells nothing of the inside."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import OperationalError
from django.test import Client

from quality import calls
from tests.api.client import Api

LIST = "/api/admin/quality/tool-calls"

type Apis = Callable[..., Api]


def assert_problem(response: Any, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status
    assert response["Content-Type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert {"type", "title", "status", "detail", "errors", "requestId"} <= set(body)
    assert body["type"] == f"urn:quality-lab:problem:{code}"
    assert body["status"] == status
    assert body["requestId"] == response["X-Request-ID"] != "-"
    return body


@pytest.mark.parametrize("path", ["/api", "/api/", "/api/nothing", "/api/admin/quality/", LIST + "/", "/v1/nothing"])
@pytest.mark.parametrize("method", ["get", "post", "delete"])
def test_unknown_addresses(db: None, path: str, method: str) -> None:
    assert_problem(getattr(Client(enforce_csrf_checks=True), method)(path), 404, "not_found")


def test_pages_keep_their_own_404(db: None) -> None:
    response = Client().get("/nothing")
    assert response.status_code == 404
    assert response["Content-Type"].startswith("text/html")


def test_a_method_that_is_not_there(api: Apis) -> None:
    response = api().post(LIST, {})
    assert_problem(response, 405, "method_not_allowed")
    assert "GET" in response["Allow"]


def test_an_answer_the_client_would_not_take(api: Apis) -> None:
    client = api()
    client.headers["Accept"] = "text/html"
    assert_problem(client.get(LIST), 406, "not_acceptable")


def test_a_body_that_is_no_json_by_its_own_word(api: Apis) -> None:
    response = api().post(LIST + "/1/feedback", b"label=other", content_type="application/x-www-form-urlencoded")
    assert_problem(response, 415, "unsupported_media_type")


def test_a_host_that_is_not_ours(api: Apis) -> None:
    client = api()
    client.headers["Host"] = "evil.example"
    assert_problem(client.get(LIST), 400, "bad_request")


def test_a_fault_of_ours_tells_nothing_but_the_request_id(api: Apis, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("the secret inside")

    monkeypatch.setattr(calls, "find", fail)
    client = api()
    client.client.raise_request_exception = False
    client.headers["X-Request-ID"] = "given-by-the-proxy"
    response = client.get(LIST)
    body = assert_problem(response, 500, "internal_error")
    assert body["requestId"] == "given-by-the-proxy"
    assert b"secret" not in response.content
    assert b"Traceback" not in response.content


def test_a_database_that_does_not_answer(api: Apis, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OperationalError("server closed the connection: host 10.0.0.7")

    monkeypatch.setattr(calls, "find", fail)
    response = api().get(LIST)
    assert_problem(response, 503, "unavailable")
    assert response["Retry-After"]
    assert b"10.0.0.7" not in response.content


def test_answers_are_not_kept_by_browsers_or_proxies(api: Apis) -> None:
    assert "no-store" in api().get(LIST)["Cache-Control"]
