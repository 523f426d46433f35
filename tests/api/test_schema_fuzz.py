"""Schemathesis over the ways in: whatever a body, a header or a query holds, no answer is a 5xx."""

from collections.abc import Callable
from typing import Any

import pytest
import schemathesis
from drf_spectacular.generators import SchemaGenerator
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error

from tests.service import Service

EXAMPLES = 60
OPERATIONS = (("/v1/traces", "post"), ("/api/ingest/tool-calls", "post"))


@pytest.mark.slow
@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_no_request_is_answered_with_a_fault_of_ours(
    path: str, method: str, live_service: Service, api: Callable[..., Any]
) -> None:
    described = SchemaGenerator().get_schema(public=True)  # type: ignore[no-untyped-call]
    operation = schemathesis.openapi.from_dict(described)[path][method]
    headers = api("ingest:write").headers

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(data=st.data())
    def ask(data: st.DataObject) -> None:
        mode = data.draw(st.sampled_from(list(schemathesis.GenerationMode)))
        case = data.draw(operation.as_strategy(generation_mode=mode))
        case.call_and_validate(base_url=live_service.url, headers=headers, checks=[not_a_server_error])

    ask()
