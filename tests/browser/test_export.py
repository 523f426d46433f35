"""A large export: ordered, followed while it is made, fetched; and one that is cancelled."""

import hashlib
import json
import re
from pathlib import Path

import pytest
from django.conf import settings
from playwright.sync_api import expect

from quality.models import Export
from tenants.scope import tenant_scope
from tests.browser.look import amiss
from tests.bulk import labelled_calls

pytestmark = [pytest.mark.browser, pytest.mark.slow]

ROWS = settings.EXPORT_JOB_ROWS + 1


def job_of(tenant):
    with tenant_scope(tenant):
        return Export.objects.get()


def test_a_large_file_is_made_followed_and_fetched_by_keys(desk, member, tenant, worker):
    admin = member("admin")
    with tenant_scope(tenant):
        labelled_calls(ROWS, admin.user)
    window = desk(admin)
    page = window.open("/t/acme/export/")
    expect(page.get_by_text(f"More than {settings.EXPORT_JOB_ROWS:,} calls")).to_be_visible()
    window.press("d")
    page.wait_for_url("**/export/jobs/*/")
    expect(page.get_by_role("progressbar")).to_be_visible()
    expect(page.locator("#progress .tag")).to_have_text(re.compile("running|done"), timeout=60_000)
    expect(page.locator("#progress .tag")).to_have_text("done", timeout=120_000)
    job = job_of(tenant)
    expect(page.get_by_text(job.sha256)).to_be_visible()
    with page.expect_download() as download:
        window.press("d")
    assert download.value.suggested_filename == "acme-tool-calls.jsonl"
    body = Path(download.value.path()).read_bytes()
    assert hashlib.sha256(body).hexdigest() == job.sha256
    assert json.loads(body.splitlines()[-1])["count"] == ROWS
    with page.expect_download() as download:
        window.press("m")
    assert json.loads(Path(download.value.path()).read_text())["rows"] == ROWS
    window.press("b")
    expect(page.get_by_role("link", name="Calls", exact=True).last).to_be_visible()
    expect(page.locator("td .tag.done")).to_be_visible()
    window.check()


def test_an_export_that_waits_can_be_cancelled(desk, member, tenant):
    """Nobody works here: it stays queued."""
    admin = member("admin")
    with tenant_scope(tenant):
        labelled_calls(1, admin.user)
        job = Export.objects.create(kind="calls", num_expected=ROWS, created_by=admin.user)
    window = desk(admin)
    page = window.open(f"/t/acme/export/jobs/{job.pk}/")
    expect(page.get_by_text("Waits for a worker")).to_be_visible()
    window.press("x")
    expect(page.get_by_text("nothing of it is kept")).to_be_visible()
    expect(page.get_by_role("progressbar")).to_be_hidden()
    window.check()


def test_the_pages_are_legible_and_fit(desk, member, tenant):
    admin = member("admin")
    with tenant_scope(tenant):
        labelled_calls(3, admin.user)
        done = Export.objects.create(
            kind="feedback",
            query="label=bad_args&from=2026-01-01",
            state="done",
            sha256="0" * 64,
            created_by=admin.user,
        )
    window = desk(admin)
    for path in ("", "?what=feedback", "?what=cases", "?what=proposals", f"jobs/{done.pk}/"):
        assert amiss(window.open(f"/t/acme/export/{path}")) == [], path
    page = window.open("/t/acme/export/")
    window.press("2")
    expect(page.get_by_role("heading", name="Feedback")).to_be_visible()
    window.press("f")
    expect(page.get_by_text("the guidelines that held then")).to_be_visible()
    window.check()
