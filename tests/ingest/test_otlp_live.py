"""Programs that send spans to the running service: OpenTelemetry's SDK, and an OpenAI client under OpenInference."""

import gzip
import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import httpx
import openai
import pytest
from django.db.models import F
from openinference.instrumentation import using_attributes
from openinference.instrumentation.openai import OpenAIInstrumentor
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor

from engine.providers.scripted import ScriptedServer
from quality.ingest import otlp_store
from quality.models import OtlpTrace, ToolCall, Turn
from tenants.models import Tenant
from tenants.scope import tenant_scope
from tests.ingest.otlp_files import PATH, PROTOBUF, batch, protobuf
from tests.ingest.span_files import genai_chat, genai_tool
from tests.service import Service
from tests.turns.servers import scripted_model

TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
]


@pytest.fixture(params=["asgi", "wsgi"])
def service(request: pytest.FixtureRequest) -> Service:
    found: Service = request.getfixturevalue("live_service" if request.param == "asgi" else "live_wsgi_service")
    return found


@pytest.fixture
def exporter(live_service: Service, api: Callable[..., Any]) -> Callable[..., OTLPSpanExporter]:
    """`exporter(compression=…)`: OpenTelemetry's own, with a token of the tenant."""
    client = api("ingest:write")

    def make(**options: Any) -> OTLPSpanExporter:
        return OTLPSpanExporter(endpoint=live_service.url + PATH, headers=client.headers, **options)

    return make


@pytest.fixture
def model() -> Iterator[ScriptedServer]:
    with scripted_model() as server:
        yield server


@pytest.mark.parametrize("compression", [Compression.NoCompression, Compression.Gzip])
def test_the_sdks_exporter_sends_an_agents_spans(exporter, tenant, compression):
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(exporter(compression=compression)))
    tracer = provider.get_tracer("agent")
    about = {"gen_ai.operation.name": "invoke_agent", "gen_ai.conversation.id": "c-7"}
    with tracer.start_as_current_span("invoke_agent desk", attributes=about):
        asked = [
            {"role": "assistant", "parts": [{"type": "tool_call", "id": "a", "name": "get_order", "arguments": {}}]}
        ]
        with tracer.start_as_current_span("chat m") as chat:
            chat.set_attributes({"gen_ai.operation.name": "chat", "gen_ai.output.messages": json.dumps(asked)})
        with suppress(ValueError), tracer.start_as_current_span("execute_tool get_order") as tool:
            tool.set_attributes({"gen_ai.tool.name": "get_order", "gen_ai.tool.call.id": "a"})
            tool.set_attribute("gen_ai.operation.name", "execute_tool")
            with tracer.start_as_current_span("SELECT"):
                raise ValueError("the order is gone")
    provider.shutdown()
    with tenant_scope(tenant):
        call = ToolCall.objects.get()
        assert (call.tool_name, call.tool_call_id, call.conversation_id) == ("get_order", "a", "c-7")
        assert (call.args, call.cycle, call.duration_ms is not None) == ("{}", 0, True)
        assert (call.is_error, call.error) == (True, "ValueError: the order is gone")
        assert OtlpTrace.objects.get().num_spans == 3


@pytest.mark.parametrize("streamed", [False, True])
def test_an_openai_client_under_openinference_sends_its_calls(exporter, tenant, model, streamed):
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter()))
    instrumentor = OpenAIInstrumentor()
    instrumentor.instrument(tracer_provider=provider)
    try:
        client = openai.OpenAI(base_url=f"{model.base_url}", api_key="none", max_retries=0)
        messages: list[Any] = [{"role": "user", "content": "What is the weather in Rome?"}]
        ask: dict[str, Any] = {"model": "one_call", "tools": TOOLS, "extra_headers": {"X-Script": "one_call"}}
        with (
            using_attributes(session_id="c-9", user_id="zoe"),
            provider.get_tracer("program").start_as_current_span("turn"),
        ):
            if streamed:
                for _ in client.chat.completions.create(messages=messages, stream=True, **ask):
                    pass
            else:
                client.chat.completions.create(messages=messages, **ask)
    finally:
        instrumentor.uninstrument()
        provider.shutdown()
    with tenant_scope(tenant):
        call = ToolCall.objects.select_related("toolset").get()
        turn = Turn.objects.get()
    assert (call.source, call.tool_name, call.conversation_id, call.contact_id) == (
        "openinference",
        "get_weather",
        "c-9",
        "zoe",
    )
    assert isinstance(json.loads(call.args or "null"), dict)
    assert call.warnings == ["no_result"]
    assert call.toolset is not None
    assert json.loads(call.toolset.tools) == TOOLS
    assert json.loads(turn.messages or "[]")[0] == messages[0]


def test_a_bomb_is_refused_in_little_memory_and_the_service_goes_on(service, api):
    headers = {**api("ingest:write").headers, "Content-Type": PROTOBUF}
    bomb = gzip.compress(bytes(1024 * 1024) * 400)
    assert len(bomb) < 1024 * 1024
    before = service.memory_bytes()
    for _ in range(3):
        packed = {**headers, "Content-Encoding": "gzip"}
        answer = httpx.post(service.url + PATH, content=bomb, headers=packed, timeout=60, trust_env=False)
        assert (answer.status_code, answer.headers["Content-Type"]) == (413, PROTOBUF)
    assert service.memory_bytes() - before < 120 * 1024 * 1024
    large = httpx.post(
        service.url + PATH, content=bytes(21 * 1024 * 1024), headers=headers, timeout=60, trust_env=False
    )
    assert (large.status_code, large.headers["Content-Type"]) == (413, PROTOBUF)
    good = httpx.post(service.url + PATH, content=b"", headers=headers, timeout=60, trust_env=False)
    assert (good.status_code, good.content) == (200, b"")


@pytest.mark.slow
def test_ten_thousand_spans_of_one_trace_in_reverse_lose_nothing(live_service, api, tenant):
    spans = []
    for number in range(1, 2_501):
        at = 10 * number
        spans.append(genai_chat(at, *(f"{number}-{n}" for n in range(3))))
        spans += [genai_tool(at + 1 + n, call_id=f"{number}-{n}") for n in range(3)]
    spans.reverse()
    headers = {**api("ingest:write").headers, "Content-Type": PROTOBUF}
    with httpx.Client(headers=headers, timeout=120, trust_env=False) as client:
        for start in range(0, len(spans), 512):
            answer = client.post(live_service.url + PATH, content=protobuf(batch(spans[start : start + 512])))
            assert (answer.status_code, answer.content) == (200, b"")
    with tenant_scope(tenant):
        trace = OtlpTrace.objects.get()
    assert trace.num_spans == 10_000
    _read(tenant, trace.pk)
    with tenant_scope(tenant):
        turn = Turn.objects.get()
        places = set(ToolCall.objects.values_list("cycle", "index", "tool_call_id"))
    assert (turn.num_calls, turn.num_cycles) == (7_500, 2_500)
    assert places == {(number - 1, n, f"{number}-{n}") for number in range(1, 2_501) for n in range(3)}


def _read(tenant: Tenant, trace: int) -> None:
    """What a worker does with the message that the service sent, also if one is at it already."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        otlp_store.run(trace, tenant_id=tenant.pk)
        with tenant_scope(tenant):
            if OtlpTrace.objects.filter(pk=trace, read_version=F("version")).exists():
                return
        time.sleep(0.2)
    pytest.fail("The trace was not read.")
