"""Hints appear by themselves behind an import, and are gone through by keyboard."""

import re
import time

import pytest
from django.core.management import call_command
from playwright.sync_api import expect

from quality.models import Feedback, Hint
from tenants.scope import tenant_scope
from tests.corpus.corpus import folder

pytestmark = pytest.mark.browser

LIMIT_S = 90


def made(tenant):
    """Rules of the hints that a worker made, once there are some."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        with tenant_scope(tenant):
            if found := set(Hint.objects.values_list("rule", flat=True)):
                return found
        time.sleep(0.2)
    pytest.fail("No worker made a hint.")


def test_a_file_comes_in_and_its_hints_are_gone_through(desk, member, tenant, worker):
    file = folder() / "traces/openai_chat/tool_error.json"
    if not file.exists():
        pytest.skip("the corpus is not there")
    call_command("import_traces", str(file), tenant=tenant.slug)
    assert "error_not_retried" in made(tenant)
    ada = desk(member("operator"))
    page = ada.open("/t/acme/calls/")
    page.get_by_label("Hint").select_option("error_not_retried")
    expect(page).to_have_url(re.compile("hint=error_not_retried"))
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("tbody .hint")).to_contain_text("error, no retry")
    ada.press("v")
    expect(page).to_have_url(re.compile(r"/review/\?hint=error_not_retried"))
    expect(page.locator(".hints")).to_contain_text("and no call followed")
    ada.press("5")
    expect(page.locator("[data-save-state]")).to_contain_text("Other")
    with tenant_scope(tenant):
        assert Feedback.objects.get().label == "other"
    ada.check()
