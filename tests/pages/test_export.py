"""The export page and what it downloads."""

import json

import pytest

from quality import streaming
from quality.export import FILE_NAMES
from quality.export_fields import FIELDS
from quality.models import Label
from quality.review.items import item_of_call
from quality.review.labelling import record_label
from tenants.models import AuditEvent
from tests.factories import CaseFactory, ProposalFactory
from tests.pages.conftest import HTMX


def records(response):
    assert response.headers["Content-Disposition"].startswith('attachment; filename="acme-')
    return [json.loads(line) for line in b"".join(response.streaming_content).decode().splitlines()]


def test_the_page_counts_what_the_file_then_holds(browse, make_call):
    make_call(tool_name="get_time")
    make_call(is_error=True)
    admin = browse("admin")
    assert "Download 2 calls" in " ".join(admin.get("/t/acme/export/").text.split())
    page = admin.get("/t/acme/export/?error=yes")
    assert "Download 1 call" in page.text
    assert 'href="/t/acme/export/tool-calls.jsonl?error=yes"' in page.text
    *lines, trailer = records(admin.get("/t/acme/export/tool-calls.jsonl?error=yes"))
    assert [line["toolName"] for line in lines] == ["get_weather"]
    assert trailer["recordType"] == "_end"
    assert trailer["count"] == 1


def test_feedback_goes_out_by_label(browse, make_call, inside):
    admin = browse("admin")
    for label in (Label.GOOD_REPLY, Label.WRONG_TOOL):
        call = make_call()
        with inside():
            record_label(item=item_of_call(call.pk), reviewer=admin.member.user, label=label)
    assert len(records(admin.get("/t/acme/export/tool-call-feedback.jsonl"))) == 3
    *lines, _ = records(admin.get("/t/acme/export/tool-call-feedback.jsonl?label=wrong_tool"))
    assert [line["label"] for line in lines] == ["wrong_tool"]


def test_htmx_gets_the_part(browse, make_call):
    make_call()
    response = browse("admin").get("/t/acme/export/?tool=get_weather&label=", headers=HTMX)
    assert "<html" not in response.text
    assert response.headers["HX-Push-Url"] == "/t/acme/export/?tool=get_weather"


def test_a_bad_filter_is_told_back_and_downloads_nothing(browse, make_call):
    make_call()
    admin = browse("admin")
    page = admin.get("/t/acme/export/?error=perhaps")
    assert "error:" in page.text
    assert "Download" not in page.text
    refused = admin.get("/t/acme/export/tool-calls.jsonl?error=perhaps")
    assert refused.status_code == 400
    assert "error:" in refused.text


@pytest.mark.parametrize("query", ["label=wrongtool", "label=none", "from=yesterday", "to=0001-01-01", "limit=x"])
def test_a_slip_in_the_address_never_widens_the_feedback_file(browse, make_call, query):
    refused = browse("admin").get(f"/t/acme/export/tool-call-feedback.jsonl?{query}")
    assert refused.status_code == 400
    assert query.partition("=")[0] in refused.text


def test_where_too_many_files_run_at_once_one_is_told_to_come_back(browse, inside, monkeypatch):
    monkeypatch.setattr(streaming, "_slots", streaming.BoundedSemaphore(1))
    admin = browse("admin")
    begun = admin.get("/t/acme/export/tool-calls.jsonl")
    response = admin.get("/t/acme/export/tool-calls.jsonl?tool=book")
    assert response.status_code == 503
    assert response["Retry-After"] == "5"
    assert "Too many exports" in response.text
    begun.close()
    with inside():
        events = AuditEvent.objects.filter(action__startswith="export.").order_by("id")
        assert [event.action for event in events] == ["export.calls", "export.refused"]
        assert events[1].detail == {"tools": ["book"], "limit": None, "reason": "busy", "kind": "calls"}


NOUNS = {"calls": "call", "feedback": "label", "cases": "case", "proposals": "proposal"}


@pytest.fixture
def one_of_each(browse, make_call, inside):
    """An admin of a tenant with a call, a label, a case and a proposal."""
    admin = browse("admin")
    call = make_call()
    with inside():
        record_label(item=item_of_call(call.pk), reviewer=admin.member.user, label="bad_args")
        CaseFactory()
        ProposalFactory(created_by=admin.member.user)
    return admin


@pytest.mark.parametrize("kind", ["calls", "feedback", "cases", "proposals"])
def test_each_kind_says_what_is_in_its_file(one_of_each, kind):
    page = one_of_each.get(f"/t/acme/export/?what={kind}")
    line, trailer = records(one_of_each.get(f"/t/acme/export/{FILE_NAMES[kind]}.jsonl"))
    assert trailer["count"] == 1
    assert list(line) == list(FIELDS[kind])
    for name in line:
        assert f"<code>{name}</code>" in page.text
    assert f"Download 1 {NOUNS[kind]}" in page.text
    assert f"{{&quot;recordType&quot;:&quot;{line['recordType']}&quot;" in page.text  # the first line
    assert "Files made in the background" not in page.text


def test_an_example_is_inert_and_cut(browse, make_call):
    make_call(args='"<b onclick=alert(1)>\u202e' + "x" * 5_000 + '"')
    page = browse("admin").get("/t/acme/export/").text
    assert "<b onclick" not in page
    assert "more characters" in page
    assert "x" * 1_500 not in page


@pytest.mark.parametrize(
    ("query", "count"), [("status=archived", 0), ("status=active", 1), ("label=other", 0), ("tool=get_weather", 1)]
)
def test_cases_are_narrowed_by_their_own_filter(one_of_each, query, count):
    page = one_of_each.get(f"/t/acme/export/?what=cases&{query}")
    assert f"Download {count} case" in page.text
    assert f'href="/t/acme/export/tool-call-regression-cases.jsonl?{query}"' in page.text
    pushed = one_of_each.get(f"/t/acme/export/?what=cases&{query}&label=", headers=HTMX).headers["HX-Push-Url"]
    assert pushed == f"/t/acme/export/?{query}&what=cases"


def test_nothing_to_export_says_the_next_step(browse):
    admin = browse("admin")
    for kind, step in {"calls": "Import traces", "feedback": "Label calls", "cases": "track"}.items():
        assert step in admin.get(f"/t/acme/export/?what={kind}").text
    assert "Take the filter away" in admin.get("/t/acme/export/?what=cases&status=active").text
    assert admin.get("/t/acme/export/?what=secrets").status_code == 404


def test_feedback_goes_out_as_a_table(one_of_each):
    page = one_of_each.get("/t/acme/export/?what=feedback&label=bad_args").text
    assert 'href="/t/acme/export/tool-call-feedback.csv?label=bad_args"' in page
    response = one_of_each.get("/t/acme/export/tool-call-feedback.csv?label=bad_args")
    assert response["Content-Disposition"] == 'attachment; filename="acme-tool-call-feedback.csv"'
    assert b"".join(response).decode("utf-8-sig").count("\r\n") == 2


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_only_admins_export(browse, outsider, role):
    member = browse(role)
    for name in (*(f"{name}.jsonl" for name in FILE_NAMES.values()), "tool-call-feedback.csv", "?what=cases"):
        assert member.get(f"/t/acme/export/{name}").status_code == 403
        assert outsider.get(f"/t/acme/export/{name}").status_code == 404
