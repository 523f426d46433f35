"""Traces over OTLP that could not be read: shown with the reason, read once more, deleted."""

import pytest
from django.db import connection

from quality import tasks
from quality.ingest import otlp_store
from quality.models import OtlpSpan, OtlpTrace
from tenants.models import AuditEvent
from tenants.scope import tenant_scope
from tests.ingest.span_files import genai_chat, genai_tool
from tests.ingest.test_otlp_store import send

PAGE = "/t/acme/imports/"


@pytest.fixture
def failed(tenant):
    """A trace with more calls in one reply than there are places for."""
    return make_failed(tenant)


def make_failed(tenant) -> OtlpTrace:
    send(tenant, genai_tool(1))
    with tenant_scope(tenant):
        OtlpTrace.objects.update(failure="More than <b>32,767</b> calls of one reply.")
        return OtlpTrace.objects.get()


def test_a_trace_that_cannot_be_read_is_shown_with_its_reason(browse, failed):
    for role in ("viewer", "operator"):
        page = browse(role).get(PAGE).text
        assert failed.trace_id in page
        assert "More than &lt;b&gt;32,767&lt;/b&gt; calls" in page
        assert ("Read it once more" in page) == (role == "operator")


def test_where_all_was_read_nothing_is_said(browse, tenant):
    send(tenant, genai_tool(1))
    assert "could not be read" not in browse("operator").get(PAGE).text


def test_it_is_read_once_more(browse, failed, tenant, monkeypatch):
    sent = []
    monkeypatch.setattr(tasks.read_spans, "delay", lambda *args: sent.append(args))
    assert browse("operator").post(f"{PAGE}traces/{failed.pk}/retry/").url == PAGE
    assert sent == [(tenant.pk, failed.pk)]
    tasks.read_spans(*sent[0])
    with tenant_scope(tenant):
        trace = OtlpTrace.objects.get()
    assert (trace.failure, trace.read_version == trace.version) == ("", True)
    assert "could not be read" not in browse("operator").get(PAGE).text
    assert "read meanwhile" in browse("operator").post(f"{PAGE}traces/{failed.pk}/retry/", follow=True).text


def test_it_is_deleted_with_its_spans_and_the_audit_log_tells(browse, failed, tenant):
    browse("operator").post(f"{PAGE}traces/{failed.pk}/delete/")
    with tenant_scope(tenant):
        assert not OtlpTrace.objects.exists()
        assert not OtlpSpan.objects.exists()
        assert AuditEvent.objects.get(action="trace.deleted").detail == {"trace": failed.trace_id, "spans": 1}


@pytest.mark.parametrize("step", ["retry", "delete"])
def test_only_operators_of_the_tenant_decide(browse, other_tenant, failed, step):
    assert browse("viewer").post(f"{PAGE}traces/{failed.pk}/{step}/").status_code == 403
    assert browse("operator").post(f"{PAGE}traces/{failed.pk + 1}/{step}/").status_code == 404
    theirs = make_failed(other_tenant)
    assert browse("operator").post(f"{PAGE}traces/{theirs.pk}/{step}/").status_code == 404
    assert theirs.trace_id not in browse("operator").get(PAGE).text or theirs.trace_id == failed.trace_id
    with tenant_scope(other_tenant):
        assert OtlpTrace.objects.get().failure


def test_a_reading_that_went_wrong_to_the_end_is_told_too(browse, tenant, monkeypatch):
    def fail(*args: object) -> None:
        raise RuntimeError("no")

    with monkeypatch.context() as patch:
        patch.setattr(otlp_store, "write", fail)
        send(tenant, genai_chat(1), genai_tool(2))
        with tenant_scope(tenant):
            pk = OtlpTrace.objects.get().pk
        for _ in range(otlp_store.MAX_ATTEMPTS):
            assert "could not be read" not in browse("operator").get(PAGE).text
            with pytest.raises(RuntimeError):
                otlp_store.run(pk, tenant_id=tenant.pk)
    assert "Something went wrong here (RuntimeError)" in browse("operator").get(PAGE).text
    send(tenant, genai_tool(3, call_id="b"))
    assert "could not be read" not in browse("operator").get(PAGE).text


def test_the_list_asks_an_index_for_them(tenant, failed):
    with tenant_scope(tenant), connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute(
            "EXPLAIN SELECT id FROM otlp_traces WHERE tenant_id = %s AND NOT (failure = '') "
            "ORDER BY last_at DESC, id DESC LIMIT 51",
            [tenant.pk],
        )
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert "otlp_traces_failed_idx" in plan
