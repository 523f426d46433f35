"""Bytes pass as they come: what a client reads with the gateway is what it reads without."""

import threading
from typing import Any

import httpx
import pytest

from tests.gateway.conftest import PATIENCE_S, QUESTION, TOOLS, UPSTREAM_KEY, Lab, RawServer

SCRIPTS = [
    *(f"S{number}" for number in range(1, 15) if number != 11),
    "S11:0.3", "unfinished_call", "two_thoughts", "repeated_ids", "no_ids", "null_members", "crlf_and_mark", "no_done",
    "bad_json", "no_choices", "whole_instead_of_stream", "html", "html:502", "rate_limited:7", "status:418",
    "status:503", "error_mid_stream:Well", "parallel_calls:3",
]  # fmt: skip


def body(**fields: Any) -> dict[str, Any]:
    return {"model": "main", "messages": [QUESTION], "tools": TOOLS, "stream": True, **fields}


def told(response: httpx.Response) -> tuple[int, bytes, dict[str, str]]:
    """Status, body and the headers that say something of the answer."""
    headers = {name: value for name, value in response.headers.items() if name in ("content-type", "retry-after")}
    return response.status_code, response.content, headers


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("is_streamed", [True, False], ids=["streamed", "whole"])
def test_with_and_without_the_gateway_a_client_reads_the_same_bytes(lab: Lab, script: str, is_streamed: bool):
    sent = body(stream=is_streamed, stream_options={"include_usage": True})
    through = lab.post(script, sent)
    direct = httpx.post(
        f"{lab.model.base_url}/chat/completions",
        json={**sent, "model": "plain_text"},
        headers={"X-Script": script},
        timeout=30,
    )
    assert told(through) == told(direct)


@pytest.mark.parametrize("script", SCRIPTS)
def test_with_repair_switched_on_what_holds_no_call_in_text_passes_unchanged(lab: Lab, script: str):
    if script in ("S3", "S4", "S8"):
        pytest.skip("these are repaired")
    lab.endpoint("mends", repairs_text_calls=True, asks_again_when_empty=True)
    through = lab.post(script, body(model="mends"))
    direct = httpx.post(
        f"{lab.model.base_url}/chat/completions",
        json=body(model="plain_text"),
        headers={"X-Script": script},
        timeout=30,
    )
    assert told(through) == told(direct)


def test_the_server_gets_its_own_name_key_and_defaults_and_the_client_the_last_word(lab: Lab):
    lab.endpoint("keyed", model="S1", key=UPSTREAM_KEY, parameters={"temperature": 0.1, "top_k": 40})
    spelled = b'{"model":"keyed","messages":[{"role":"user","content":"Hi"}],"temperature":1.10,"x_own":{"a":1e2}}'
    headers = {**lab.headers, "Content-Type": "application/json", "X-QLab-Contact": "ada", "OpenAI-Organization": "o-1"}
    assert httpx.post(f"{lab.url}/chat/completions", content=spelled, headers=headers).status_code == 200
    ask = lab.model.asked[-1]
    assert ask.body == {
        "model": "S1",
        "messages": [{"role": "user", "content": "Hi"}],
        "temperature": 1.1,
        "top_k": 40,
        "x_own": {"a": 100.0},
    }
    assert ask.headers["authorization"] == f"Bearer {UPSTREAM_KEY}"
    assert ask.headers["openai-organization"] == "o-1"
    assert not [name for name in ask.headers if name.startswith("x-qlab")]


def test_a_server_that_tells_the_key_does_not_tell_it_to_the_client(lab: Lab):
    lab.endpoint("keyed", key=UPSTREAM_KEY)
    answer = lab.post("echoed_key", {"model": "keyed"})
    assert answer.status_code == 401
    assert UPSTREAM_KEY not in answer.text
    assert "{secret:MODEL_KEY}" in answer.text


def test_chunks_come_as_the_server_sends_them(lab: Lab):
    """The words are read while the server still holds back the end."""
    with lab.stream("never_done:60") as response:
        seen = b""
        for chunk in response.iter_raw():
            seen += chunk
            if b'"finish_reason": "stop"' in seen:
                break
    assert seen.count(b"data: ") > 10


def test_one_connection_carries_many_requests_and_many_at_once_are_served(lab: Lab):
    with httpx.Client(headers=lab.headers, timeout=60) as client:
        for number in range(3):
            answer = client.post(
                f"{lab.url}/chat/completions", json=body(), headers={"X-Script": f"plain_text:{number}"}
            )
            assert f'"{number}"' in answer.text
        said = [None] * 24

        def ask(number: int) -> None:
            answer = client.post(
                f"{lab.url}/chat/completions", json=body(), headers={"X-Script": f"plain_text:n{number}"}
            )
            said[number] = answer.status_code, b"[DONE]" in answer.content

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(said))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert said == [(200, True)] * len(said)


class TestBrokenOff:
    def test_a_client_that_leaves_makes_the_server_see_a_closed_connection(self, lab: Lab, raw: RawServer):
        raw.says(HEAD + b"data: {}\n\n", holds=True)
        lab.endpoint("raw", base_url=raw.base_url)
        with lab.stream("", {"model": "raw"}) as response:
            assert next(response.iter_raw()) == b"data: {}\n\n"
            assert not raw.was_left.is_set()
        assert raw.was_left.wait(PATIENCE_S)

    def test_one_that_leaves_before_the_first_byte_does_so_too(self, lab: Lab, raw: RawServer):
        raw.says(b"", holds=True)
        lab.endpoint("raw", base_url=raw.base_url)
        with pytest.raises(httpx.ReadTimeout):
            lab.post("", {"model": "raw"}, timeout=3)
        assert raw.was_asked.is_set()
        assert raw.was_left.wait(PATIENCE_S)
        day = lab.days(lambda day: day.num_requests == 1)
        assert day.num_failed == 0  # the server did nothing wrong

    def test_a_stream_that_the_server_cuts_ends_with_a_named_error_and_a_cut(self, lab: Lab):
        seen = bytearray()
        with lab.stream("cut_connection") as response, pytest.raises(httpx.RemoteProtocolError):  # noqa: PT012
            for chunk in response.iter_raw():
                seen += chunk
        assert seen.count(b'"delta"') > 5
        assert b'"code":"cut"' in seen.split(b"data: ")[-1]
        lab.days(lambda day: day.num_failed == 1)

    @pytest.mark.parametrize(
        ("script", "status", "code"), [("hung_up", 502, "protocol_error"), ("slow_first_token:60", 504, "timed_out")]
    )
    def test_what_goes_wrong_on_the_way_has_a_name(self, lab: Lab, script: str, status: int, code: str):
        answer = lab.post(script)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
        assert answer.json()["error"]["type"] == "upstream_error"
        lab.days(lambda day: (day.num_requests, day.num_failed) == (1, 1))

    @pytest.mark.parametrize(
        ("base_url", "code"),
        [
            ("http://127.0.0.1:9/v1", "connect_failed"),
            ("http://169.254.169.254/v1", "address_not_allowed"),
            ("http://127.0.0.1:22/v1", "port_not_allowed"),
        ],
    )
    def test_a_server_that_is_not_there_or_not_allowed_is_named(self, lab: Lab, base_url: str, code: str):
        lab.endpoint("nowhere", base_url=base_url)
        answer = lab.post("S1", {"model": "nowhere"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, code)
        assert "nowhere" in answer.json()["error"]["message"]


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
HOSTILE = {
    "no UTF-8": HEAD + b"\xff\xfe\x00data: \x80\n\n" * 50,
    "deep event": HEAD + b"data: " + b"[" * 200_000 + b"\n\n",
    "endless event": HEAD + b"x" * 2_000_000,
    "deep object": JSON + b'Connection: close\r\n\r\n{"choices":' + b"[" * 100_000,
    "less than it says": JSON + b"Content-Length: 5000\r\n\r\n{}",
    "compressed": JSON + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
    "bad chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: text/event-stream\r\n\r\nZZ\r\n",
    "redirect": b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n",
    "no HTTP": b"not http at all\r\n\r\n",
    "cookie": JSON + b"Set-Cookie: qlab_session=1\r\nContent-Length: 2\r\n\r\n{}",
    "odd members": HEAD + b'data: {"choices":[{"index":0,"delta":{"content":7,"tool_calls":{"a":1}}}]}\n\n'
    b'data: {"choices":{}}\n\ndata: {"choices":[{"delta":{"content":"x","tool_calls":[7,{"function":3}]}}]}\n\n',
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_bytes_pass_or_have_a_name_and_harm_nobody(lab: Lab, raw: RawServer, kind: str):
    raw.says(HOSTILE[kind])
    for label, switched in (("on", True), ("off", False)):
        lab.endpoint(label, base_url=raw.base_url, repairs_text_calls=switched, asks_again_when_empty=switched)
        for is_streamed in (True, False):
            try:
                seen = lab.post("", {"model": label, "stream": is_streamed})
            except httpx.RemoteProtocolError:
                continue  # cut where the server was
            assert seen.status_code in (200, 302, 502)
            assert "set-cookie" not in seen.headers
            if kind != "redirect" and seen.status_code == 200 and not switched:
                assert HOSTILE[kind].endswith(seen.content)
    assert lab.post("S1").status_code == 200
    for label in ("on", "off"):
        lab.days(lambda day, label=label: day.model_label == label and day.num_requests == 2)
    assert b"Traceback" not in lab.service.log.read_bytes()
