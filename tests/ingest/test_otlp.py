"""POST /v1/traces as the protocol tells it: encodings, answers, limits, tokens."""

import base64
import gzip
import json
import random
from typing import Any

import pytest
from google.rpc import code_pb2
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceResponse,
)

from quality.ingest.otlp import Encoding, Malformed, read_request
from quality.models import OtlpSpan, OtlpTrace, ToolCall
from tenants.scope import tenant_scope
from tests.ingest.helpers import state
from tests.ingest.otlp_files import JSON, PATH, PROTOBUF, batch, body, protobuf
from tests.ingest.span_files import TRACE, genai_chat, genai_tool, otlp, otlp_span

both = pytest.mark.parametrize("content_type", [PROTOBUF, JSON])


@pytest.fixture
def client(api):
    return api("ingest:write")


def calls(tenant) -> list[str]:
    with tenant_scope(tenant):
        return list(ToolCall.objects.order_by("external_id").values_list("external_id", flat=True))


def told(answer: Any) -> Status:
    """The error of an answer, in whichever encoding."""
    if answer.headers["Content-Type"] == PROTOBUF:
        return Status.FromString(answer.content)
    assert answer.headers["Content-Type"] == JSON
    return Status(**answer.json())


@both
@pytest.mark.parametrize("packed", [False, True])
def test_spans_are_taken_and_answered_in_the_encoding_they_came_in(client, tenant, content_type, packed):
    data = body(otlp(genai_chat(1, "a"), genai_tool(2, call_id="a")), content_type)
    packing = {"HTTP_CONTENT_ENCODING": "gzip"} if packed else {}
    data = gzip.compress(data) if packed else data
    answer = client.post(PATH, data, content_type=f"{content_type}; charset=utf-8", **packing)
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, content_type)
    assert answer.content == (b"" if content_type == PROTOBUF else b"{}")
    assert calls(tenant) == [f"{TRACE}:{2:016x}"]


@both
def test_both_encodings_keep_the_same(client, api, member, tenant, other_tenant, content_type):
    values = {"a": [1, 2.5, True, {"b": "é\0"}], "big": 2**53 + 1}
    spans = [
        genai_tool(2, attributes={"gen_ai.tool.call.arguments": values}, status={"code": 2, "message": "no"}),
        genai_tool(3, call_id="b", parentSpanId=f"{2:016x}"),
    ]
    client.post(PATH, body(otlp(*spans), content_type), content_type=content_type)
    others = api("ingest:write", member=member(tenant=other_tenant))
    others.post(PATH, otlp(*spans))
    assert state(tenant) == state(other_tenant)
    with tenant_scope(tenant):
        call = ToolCall.objects.order_by("index").first()
        assert json.loads(call.args) == values
        kept = json.loads(OtlpSpan.objects.get(span_id=f"{3:016x}").data)
    assert kept["resource"]["attributes"] == [{"key": "service.name", "value": {"stringValue": "desk"}}]
    assert (kept["traceId"], kept["parentSpanId"], kept["scope"]["name"]) == (TRACE, f"{2:016x}", "s")


@both
def test_no_spans_and_spans_of_others_are_taken_and_nothing_is_kept(client, tenant, content_type):
    web = otlp_span(1, {"http.request.method": "GET", "user.id": "u"}, name="GET /")
    for document in ({}, {"resourceSpans": []}, otlp(web)):
        answer = client.post(PATH, body(document, content_type), content_type=content_type, CONTENT_TYPE=content_type)
        assert (answer.status_code, len(answer.content)) == (200, 0 if content_type == PROTOBUF else 2)
    with tenant_scope(tenant):
        assert not OtlpTrace.objects.exists()


@both
def test_bad_spans_are_told_and_the_others_are_kept(client, tenant, content_type):
    nameless = genai_tool(1, traceId="00" * 16)
    answer = client.post(PATH, body(otlp(nameless, genai_tool(2)), content_type), content_type=content_type)
    assert answer.status_code == 200
    if content_type == PROTOBUF:
        partial = ExportTraceServiceResponse.FromString(answer.content).partial_success
        number, message = str(partial.rejected_spans), partial.error_message
    else:
        partial = answer.json()["partialSuccess"]
        number, message = partial["rejectedSpans"], partial["errorMessage"]
    assert number == "1"
    assert "resourceSpans[0].scopeSpans[0].spans[0].traceId" in message
    assert len(calls(tenant)) == 1


def test_ids_may_be_base64_and_of_either_case_and_unknown_members_are_ignored(client, tenant):
    span = genai_tool(0xAB, unknown={"a": [1]}, droppedAttributesCount=3)
    shapes = [
        {**span, "traceId": TRACE.upper(), "spanId": f"{0xAB:016X}"},
        {
            **span,
            "traceId": base64.b64encode(bytes.fromhex(TRACE)).decode(),
            "spanId": base64.b64encode(bytes.fromhex(span["spanId"])).decode(),
        },
    ]
    for shape in shapes:
        assert client.post(PATH, {**batch([shape]), "new": 1}).json() == {}
    assert calls(tenant) == [f"{TRACE}:{0xAB:016x}"]


def nested(depth: int) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = [value]
    return value


@both
def test_values_nested_too_deep_or_too_many_are_refused_by_name(client, content_type):
    deep = genai_tool(1, attributes={"gen_ai.x": nested(31)})
    deeper = genai_tool(2, attributes={"gen_ai.x": nested(32)})
    many = genai_tool(3, attributes={"gen_ai.x": [0] * 60_000})
    for span, word in ((deep, None), (deeper, "nested more than 32 deep"), (many, "More than 50,000 values")):
        answer = client.post(PATH, body(otlp(span), content_type), content_type=content_type)
        assert answer.status_code == 200
        assert (word or "").encode() in answer.content
        assert bool(word) == (answer.content not in (b"", b"{}"))


def test_what_nests_without_end_is_malformed(client):
    key, wrap = b"\x0a", lambda inner: b"\x2a" + _length(inner) + inner
    value = b"\x0a\x01x"
    for _ in range(5_000):
        value = wrap(key + _length(value) + value)
    pair = b"\x0a\x08gen_ai.x\x12" + _length(value) + value
    span = b"\x4a" + _length(pair) + pair
    for _ in range(3):
        span = b"\x12" + _length(span) + span
    data = b"\x0a" + span[1:]
    assert client.post(PATH, data, content_type=PROTOBUF).status_code == 400
    assert client.post(PATH, b'{"resourceSpans":' + b"[" * 100_000).status_code == 400


def _length(data: bytes) -> bytes:
    left, written = len(data), bytearray()
    while left > 127:
        written.append(left & 127 | 128)
        left >>= 7
    return bytes([*written, left])


@pytest.mark.parametrize(
    ("content_type", "packing", "status"),
    [
        ("text/plain", "", 415),
        ("application/grpc", "", 415),
        ("", "", 415),
        (PROTOBUF, "zstd", 415),
        (JSON, "br", 415),
        (PROTOBUF, "gzip", 400),
    ],
)
def test_what_is_no_otlp_is_told_so(client, content_type, packing, status):
    packed = {"HTTP_CONTENT_ENCODING": packing} if packing else {}
    answer = client.post(PATH, b"hello", content_type=content_type, **packed)
    assert answer.status_code == status
    assert told(answer).code == code_pb2.INVALID_ARGUMENT
    assert told(answer).message
    assert answer.headers["Content-Type"] == (PROTOBUF if content_type == PROTOBUF else JSON)


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b'"x"', b'{"resourceSpans":{}}', b'{"resourceSpans":[1]}', b"\xff"])
def test_json_that_is_no_request_is_malformed(client, data):
    assert client.post(PATH, data, CONTENT_TYPE=JSON).status_code == 400


def test_a_request_cut_at_any_byte_is_an_answer_and_the_whole_is_kept(client, tenant):
    data = protobuf(otlp(genai_chat(1, "a"), genai_tool(2, call_id="a")))
    for end in range(len(data)):
        try:
            read_request(data[:end], Encoding.PROTOBUF)
        except Malformed:
            continue
    for end in range(0, len(data), 97):
        assert client.post(PATH, data[:end], content_type=PROTOBUF, CONTENT_TYPE=PROTOBUF).status_code in (200, 400)
        cut = client.post(PATH, gzip.compress(data)[: end // 4], CONTENT_TYPE=PROTOBUF, HTTP_CONTENT_ENCODING="gzip")
        assert cut.status_code == 400
    client.post(PATH, data, content_type=PROTOBUF)
    assert f"{TRACE}:{2:016x}" in calls(tenant)


def test_random_and_damaged_bytes_never_raise_but_malformed():
    draw = random.Random(7)
    data = protobuf(otlp(genai_chat(1, "a"), genai_tool(2, call_id="a", attributes={"gen_ai.x": {"a": [1]}})))
    for _ in range(3_000):
        damaged = bytearray(data)
        for _ in range(draw.randint(1, 6)):
            damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        for sent in (bytes(damaged), draw.randbytes(draw.randint(0, 300))):
            try:
                read_request(sent, Encoding.PROTOBUF)
            except Malformed:
                continue


@both
@pytest.mark.parametrize("packed", [False, True])
def test_a_body_over_the_limit_is_413_as_sent_and_unpacked(client, tenant, settings, content_type, packed):
    settings.OTLP_MAX_BYTES = 20_000
    data = body(otlp(genai_tool(1, attributes={"gen_ai.x": "x" * 30_000})), content_type)
    data = gzip.compress(data) if packed else data
    answer = client.post(PATH, data, content_type=content_type, **({"HTTP_CONTENT_ENCODING": "gzip"} if packed else {}))
    assert (answer.status_code, told(answer).code) == (413, code_pb2.RESOURCE_EXHAUSTED)
    assert not answer.has_header("Retry-After")
    assert not calls(tenant)


def test_a_token_sends_so_often_a_minute_and_is_told_when_to_come_again(client, api, settings):
    settings.OTLP_RATE_PER_MINUTE = 2
    answers = [client.post(PATH, b"", CONTENT_TYPE=PROTOBUF) for _ in range(5)]
    assert [answer.status_code for answer in answers[:2]] == [200, 200]
    refused = answers[-1]
    assert (refused.status_code, told(refused).code) == (429, code_pb2.RESOURCE_EXHAUSTED)
    assert 0 < int(refused.headers["Retry-After"]) <= 60
    assert api("ingest:write", member=client.member).post(PATH, b"", CONTENT_TYPE=PROTOBUF).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer qlab_no"}, 401),
        ({"X-Api-Key": "qlab_no"}, 401),
        ({"X-Api-Key": "{token}"}, 200),
        ({"Authorization": "Bearer {token}"}, 200),
    ],
)
def test_the_token_comes_in_either_header(client, headers, status):
    sent = {name: value.format(token=client.text) for name, value in headers.items()}
    answer = client.client.post(PATH, b"", PROTOBUF, CONTENT_TYPE=PROTOBUF, headers=sent)
    assert answer.status_code == status
    if status == 401:
        assert told(answer).code == code_pb2.UNAUTHENTICATED
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")


def test_a_token_of_another_scope_and_another_method_are_refused_in_the_protocols_form(api, client):
    answer = api("read").post(PATH, b"", CONTENT_TYPE=PROTOBUF)
    assert (answer.status_code, told(answer).code) == (403, code_pb2.PERMISSION_DENIED)
    assert "ingest:write" in told(answer).message
    answer = client.get(PATH)
    assert (answer.status_code, told(answer).code) == (405, code_pb2.UNIMPLEMENTED)
    assert answer.headers["Allow"]


def test_the_tenant_is_the_tokens(client, api, member, tenant, other_tenant):
    outsider = api("ingest:write", member=member(tenant=other_tenant))
    client.post(PATH, otlp(genai_tool(1)))
    before = state(tenant)
    outsider.post(PATH, otlp(genai_tool(1, attributes={"gen_ai.tool.name": "theirs"})))
    outsider.post(PATH, otlp(genai_chat(0, "call_1")))
    assert state(tenant) == before
    with tenant_scope(other_tenant):
        assert ToolCall.objects.get().tool_name == "theirs"
