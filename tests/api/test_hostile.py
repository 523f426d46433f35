"""Nothing that a client sends is a fault of ours: whatever it is, the answer is one of the documented ones."""

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote_from_bytes

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quality.models import FeedbackEvent, ToolCall
from tenants.models import Tenant
from tenants.scope import tenant_scope
from tests.api.client import Api
from tests.factories import ToolCallFactory

ADMIN = "/api/admin/quality"
NAMES = [
    "conversation",
    "message",
    "outbound_message",
    "contact",
    "tool",
    "error",
    "source",
    "style",
    "model",
    "label",
    "from",
    "to",
    "cursor",
    "page_size",
    "count",
    "limit",
]
USUAL = ["", "none", "yes", "other", "1", "-1", "2026-03-01", "2026-03-01T00:00:00Z", "0001-01-01T00:00+14:00", "\x00"]
EXTREME = ["9999-12-31", "99999999999999999999", "1e400", "NaN", "MW4wMDAxLTAxLTAxVDAwOjAwOjAwKzE0OjAwLzE", "٣", "1_0"]

values = (
    st.sampled_from(USUAL + EXTREME).map(str.encode)
    | st.binary(max_size=30)
    | st.text(max_size=30).map(lambda text: text.encode(errors="surrogatepass"))
)
queries = st.lists(st.tuples(st.sampled_from(NAMES), values), max_size=4)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.sampled_from(USUAL)
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
)
members = st.sampled_from(["label", "note", "correction", "version", "cycle", "reviewer", ""])
patient = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True
)


@pytest.fixture
def client(api: Callable[..., Api]) -> Api:
    return api()


@pytest.fixture
def call(tenant: Tenant) -> ToolCall:
    with tenant_scope(tenant):
        return ToolCallFactory()


@pytest.mark.parametrize(
    "path", ["tool-calls", "tool-call-feedback/summary", "tool-call-feedback/export.jsonl", "tool-calls/export.jsonl"]
)
def test_any_query_string_has_a_documented_answer(client: Api, call: ToolCall, path: str) -> None:
    @patient
    @given(queries)
    def ask(pairs: list[tuple[str, bytes]]) -> None:
        query = "&".join(f"{name}={quote_from_bytes(value)}" for name, value in pairs)
        response = client.get(f"{ADMIN}/{path}?{query}")
        assert response.status_code in {200, 400}
        if response.status_code == 200:
            b"".join(response)
        else:
            assert response.json()["errors"]

    ask()


@pytest.mark.parametrize(
    "path", ["tool-calls/{call}/feedback", "turns/{turn}/feedback", "tool-calls/{call}/feedback/undo"]
)
def test_any_body_has_a_documented_answer(client: Api, tenant: Tenant, call: ToolCall, path: str) -> None:
    address = f"{ADMIN}/{path.format(call=call.pk, turn=call.turn_id)}"

    @patient
    @given(st.dictionaries(members, anything, max_size=4) | anything)
    def send(body: Any) -> None:
        response = client.post(address, json.dumps(body).encode())
        assert response.status_code in {200, 400, 404, 409}
        assert response.json()

    @patient
    @given(st.binary(max_size=60))
    def send_bytes(body: bytes) -> None:
        assert client.post(address, body).status_code in {200, 400, 404, 409}

    send()
    send_bytes()
    with tenant_scope(tenant):
        assert not FeedbackEvent.objects.exclude(label__in=["other", "good_reply"]).exists()
