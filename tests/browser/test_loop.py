"""The whole loop in one sitting: a bad call becomes a label, a proposal, a case, and a line of an export."""

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

from quality.models import Case, Feedback, Proposal
from tenants.models import Membership, Role, Tenant
from tenants.scope import tenant_scope
from tests.browser.conftest import Desk
from tests.factories import CaseFactory, ToolCallFactory, TurnFactory

pytestmark = pytest.mark.browser
SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"


def test_from_a_bad_call_to_an_exported_case(
    tenant: Tenant, member: Callable[..., Membership], desk: Callable[..., Desk]
) -> None:
    with tenant_scope(tenant):
        call = ToolCallFactory(turn=TurnFactory(), args='{"city": "Zurich", "unit": "celsius"}')
    ada = desk(member(Role.ADMIN))

    # A bad call is labelled, with the arguments that would have been right.
    page = ada.open(f"/t/acme/review/?call={call.pk}")
    ada.press("c", "4")
    city = page.get_by_label("city")
    city.fill("Zürich")
    assert "Zürich" in page.locator("[data-diff] ins").inner_text()
    ada.press("Control+Enter")
    page.wait_for_url("**done=1**")
    with tenant_scope(tenant):
        feedback = Feedback.objects.get()
        assert json.loads(feedback.correction or "{}")["arguments"]["city"] == "Zürich"
        assert feedback.faults == ["arg:/city"]

    # What reviewers ask for is tracked.
    ada.press("g", "x")
    page.get_by_role("button", name="Track").click()
    page.wait_for_url("**/proposals/*/")
    page.get_by_text("open", exact=True).first.wait_for()

    # A case of the call closes the proposal.
    ada.press("c")
    page.wait_for_url("**/cases/new/**")
    verdict = page.locator("#verdict")
    assert "fail" in verdict.inner_text()
    assert "pass" in verdict.inner_text()
    ada.press("s")
    page.wait_for_url("**/cases/REG-1/")
    with tenant_scope(tenant):
        proposal = Proposal.objects.get()
    assert (proposal.state, proposal.resolution_kind, proposal.resolution_ref) == (
        "applied",
        "regression_case",
        "REG-1",
    )
    ada.open(f"/t/acme/proposals/{proposal.pk}/")
    page.get_by_role("link", name="REG-1").first.click()
    page.wait_for_url("**/cases/REG-1/")

    # Archived, and restored.
    ada.press("z")
    page.locator(".tag.archived").wait_for()
    ada.press("z")
    page.locator(".tag.active").wait_for()

    # Exported: the line is what the published schema says, and the trailer counts it.
    with page.expect_download() as started:
        page.evaluate("location.href = '/t/acme/export/tool-call-regression-cases.jsonl?status=active'")
    lines = Path(started.value.path()).read_text().splitlines()
    record, trailer = (json.loads(line) for line in lines)
    schema = json.loads((SCHEMAS / "tool_call_regression_case.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(record)
    assert (record["id"], record["status"], record["label"]) == ("REG-1", "active", "bad_args")
    assert record["expected"]["expectation"]["calls"]["steps"][0]["args"]["city"] == {"equal": "Zürich"}
    assert (trailer["recordType"], trailer["count"]) == ("_end", 1)
    with tenant_scope(tenant):
        assert Case.objects.get().version == 3
    ada.check()


def test_the_editor_answers_while_one_works(
    tenant: Tenant, member: Callable[..., Membership], desk: Callable[..., Desk]
) -> None:
    with tenant_scope(tenant):
        case = CaseFactory()
    ada = desk(member(Role.OPERATOR))
    page = ada.open(f"/t/acme/cases/{case.ref}/")
    value = page.get_by_label("Value").first
    value.fill('"Zurich"')
    value.press("Tab")
    page.get_by_text("no unit is expected").wait_for()
    page.get_by_label("Arguments not listed").select_option("allow")
    page.locator("#verdict .tag.done").first.wait_for()
    page.get_by_role("button", name="Add an argument").click()
    page.get_by_label("Argument", exact=True).nth(1).fill("unit")
    page.get_by_label("How it is compared").nth(1).select_option("absent")
    page.locator("#verdict .tag.failed").first.wait_for()
    page.get_by_role("button", name="Edit as JSON").click()
    text = page.get_by_label("Expectation")
    assert json.loads(text.input_value())["calls"]["steps"][0]["args"]["unit"] == {"absent": True}
    text.fill('{"version": 1, "calls": {"mode": "frist"}}')
    page.locator("#verdict .notice.error").first.wait_for()
    assert "/calls/mode" in page.locator("#verdict").inner_text()
    ada.check()


def test_the_editor_is_used_by_keyboard_alone(
    tenant: Tenant, member: Callable[..., Membership], desk: Callable[..., Desk]
) -> None:
    """After each button the keyboard goes on where the work does, not at the top of the page."""
    with tenant_scope(tenant):
        case = CaseFactory()
    ada = desk(member(Role.OPERATOR))
    page = ada.open(f"/t/acme/cases/{case.ref}/")

    def press(name: str, focused: str) -> None:
        page.get_by_role("button", name=name).last.focus()
        page.keyboard.press("Enter")
        page.locator(f"{focused}:focus").wait_for()

    press("Add an argument", "#e-step-0-arg-1-name")
    press("Add a call", "#e-step-1-tool")
    press("Forbid a call", "#e-forbid-0-tool")
    press("Take this call away", "[value='add:forbid']")
    press("Edit as JSON", "#e-json")
    page.keyboard.press("Escape")
    press("Edit as a form", "#e-mode")
    page.keyboard.press("End")
    page.locator("#e-mode:focus").wait_for()
    ada.check()
