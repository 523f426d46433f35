"""Exported lines are what the published schemas say."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone
from jsonschema import Draft202012Validator

from quality.export_fields import FIELDS
from quality.review.items import item_of_call, item_of_turn
from quality.review.labelling import record_label
from tenants.models import Membership, Tenant
from tenants.scope import tenant_scope
from tests.api.client import Api
from tests.api.test_export import CALLS, FEEDBACK, content
from tests.api.test_export_cases import CASES, PROPOSALS
from tests.factories import CaseFactory, ProposalFactory, ToolCallFactory, TurnFactory

SCHEMAS = Path(__file__).resolve().parents[2] / "docs/schemas"


def validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(json.loads((SCHEMAS / f"{name}.json").read_text()))


@pytest.fixture
def client(tenant: Tenant, api: Callable[..., Api], member: Callable[..., Membership]) -> Api:
    """A client of a tenant with some of each kind."""
    boss = member("admin")
    with tenant_scope(tenant):
        call: Any = ToolCallFactory()
        item = item_of_call(call.pk)
        correction = '{"arguments": {"city": "Zürich"}}'
        record_label(item=item, reviewer=boss.user, label="bad_args", correction=correction, note="no")
        turn: Any = TurnFactory()
        record_label(item=item_of_turn(turn.pk), reviewer=boss.user, label="missing_tool")
        ToolCallFactory(is_error=None, args='"no JSON"', result=None, error="gone", tool_call_id=None, duration_ms=None)
        CaseFactory(tags=["smoke"])
        ProposalFactory(created_by=boss.user)
        ProposalFactory(
            fault="arg:/unit",
            state="applied",
            resolution_kind="regression_case",
            resolution_ref="REG-1",
            decided_by=boss.user,
            decided_at=timezone.now(),
        )
    return api("export:read", member=boss)


@pytest.mark.parametrize(
    ("path", "kind", "count"),
    [(CALLS, "calls", 2), (FEEDBACK, "feedback", 2), (CASES, "cases", 1), (PROPOSALS, "proposals", 2)],
)
def test_every_line_is_valid(client: Api, path: str, kind: str, count: int) -> None:
    *lines, trailer = map(json.loads, content(client.get(path)).splitlines())
    assert len(lines) == count
    schema = validator(FIELDS[kind]["recordType"])
    for line in lines:
        assert [error.message for error in schema.iter_errors(line)] == []
        assert list(line) == list(FIELDS[kind])
        assert set(schema.schema["required"]) <= set(line)
    assert list(validator("end").iter_errors(trailer)) == []


@pytest.mark.parametrize("name", sorted(path.stem for path in SCHEMAS.glob("*.json")))
def test_the_schemas_are_schemas(name: str) -> None:
    Draft202012Validator.check_schema(validator(name).schema)
