"""The export page and what it downloads."""

import json

import pytest

from quality import streaming
from quality.models import Label
from quality.review.items import item_of_call
from quality.review.labelling import record_label
from tenants.models import AuditEvent
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
