"""How much a request may carry: refused before it is read, by its stated length or as it comes."""

import json
import socket

import pytest
from django.conf import settings
from django.test import Client, RequestFactory

from quality.bodies import BodyLimitMiddleware, allowed_bytes

MIB = 1024 * 1024
SMALL = settings.DATA_UPLOAD_MAX_MEMORY_SIZE + MIB


@pytest.mark.parametrize(
    ("path", "has_session", "has_token", "is_large"),
    [
        ("/t/acme/imports/upload/", True, False, True),
        ("/t/acme/imports/upload/", False, True, False),
        ("/api/ingest/tool-calls", False, True, True),
        ("/api/ingest/tool-calls", True, False, False),
        ("/api/ingestion", False, True, False),
        ("/t/a/b/imports/upload/", True, False, False),
        ("/signin/", True, True, False),
        ("/nope", False, False, False),
    ],
)
def test_only_trace_files_of_somebody_may_be_large(path, has_session, has_token, is_large):
    limit = allowed_bytes(path, has_session=has_session, has_token=has_token)
    assert limit == (settings.IMPORT_MAX_BYTES + MIB if is_large else SMALL)


def send(port: int, head: str, pieces: int, piece: bytes = b"x" * MIB) -> tuple[bytes, int]:
    """The answer to a POST of `pieces` pieces, and how many went out before the server had enough."""
    sent = 0
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(head.encode())
        try:
            for _ in range(pieces):
                connection.sendall(piece)
                sent += 1
        except OSError:
            pass
        answer = b""
        try:
            while chunk := connection.recv(65536):
                answer += chunk
                if b"\r\n\r\n" in answer and len(answer) > 200:
                    break
        except OSError:
            pass
    return answer, sent


@pytest.mark.parametrize("path", ["/nope", "/api/ingest/tool-calls", "/t/acme/imports/upload/"])
def test_a_stated_length_over_the_limit_is_refused_unread(live_service, path):
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1500000000\r\n\r\n"
    answer, _ = send(live_service.port, head, pieces=0)
    assert answer.startswith(b"HTTP/1.1 413")
    if path.startswith("/api/"):
        problem = json.loads(answer.partition(b"\r\n\r\n")[2])
        assert (problem["status"], problem["type"]) == (413, "urn:quality-lab:problem:too_large")


def test_a_body_without_a_stated_length_is_cut_off(live_service):
    head = "POST /nope HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"100000\r\n" + b"x" * MIB + b"\r\n"
    answer, _ = send(live_service.port, head, pieces=40, piece=chunk)
    assert b"HTTP/1.1 413" in answer or answer == b""  # some clients see the connection end before they read
    assert not answer.startswith(b"HTTP/1.1 403")


def test_a_normal_body_goes_through(live_service):
    head = (
        "POST /api/ingest/tool-calls HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n[]"
    )
    answer, _ = send(live_service.port, head, pieces=0)
    assert answer.startswith(b"HTTP/1.1 401")


@pytest.mark.parametrize("path", ["/healthz", "/docs"])
def test_pages_open_to_all_say_that_they_only_read(client, db, path):
    response = Client(enforce_csrf_checks=True).post(path)
    assert response.status_code == 405
    assert response["Content-Type"] == "application/problem+json"
    assert response["Allow"] == "GET, HEAD"
    assert client.get(path).status_code == 200


def test_under_wsgi_too_a_stated_length_is_refused():
    request = RequestFactory().post("/nope", b"", content_type="text/plain", CONTENT_LENGTH=str(2 * SMALL))
    assert BodyLimitMiddleware(lambda _: pytest.fail("the view was reached"))(request).status_code == 413
