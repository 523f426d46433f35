"""A file of traces on its way in and out again, by keyboard; and the preview as it looks."""

from pathlib import Path

import pytest
from playwright.sync_api import expect

from quality.models import Import, ToolCall
from tenants.scope import tenant_scope
from tests.browser.look import amiss

pytestmark = pytest.mark.browser

CORPUS = Path(__file__).resolve().parents[1] / "corpus/data/traces"
PATIENCE_MS = 60_000


@pytest.mark.slow
def test_a_file_is_looked_at_corrected_imported_opened_and_taken_back_by_keys(desk, member, tenant, worker):
    window = desk(member("operator"))
    page = window.open("/t/acme/imports/")
    page.set_input_files("#files", CORPUS / "anthropic_messages/parallel_one_error.json")
    expect(page.get_by_role("button", name="Look at it")).to_be_focused()
    window.press("Enter")
    expect(page.get_by_text("Nothing of it is stored yet")).to_be_visible(timeout=PATIENCE_MS)
    expect(page.get_by_text("Recognised as Anthropic Messages")).to_be_visible()
    expect(page.locator("table.records tbody tr")).to_have_count(3)
    expect(page.locator("table.records")).to_contain_text("Rooms for 3 and 4 July")

    window.press("f")
    expect(page.get_by_label("Read it as")).to_be_focused()
    page.keyboard.type("Neutral")
    expect(page.get_by_text("as you said")).to_be_visible()
    expect(page.locator("#refused")).to_be_visible()
    page.wait_for_timeout(1_500)  # letters typed within a second go on with the word before
    page.keyboard.type("Anthropic")
    expect(page.get_by_text("Read as Anthropic Messages, as you said")).to_be_visible()
    expect(page.get_by_label("Read it as")).to_be_focused()
    page.keyboard.press("Escape")
    with tenant_scope(tenant):
        assert not ToolCall.objects.exists()
    window.press("i")
    expect(page.locator("#progress .tag")).to_have_text("done", timeout=PATIENCE_MS)
    with tenant_scope(tenant):
        assert Import.objects.get().num_calls == 3

    window.press("c")
    page.get_by_role("link", name="find_room").first.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="find_room", level=1)).to_be_visible()

    window.open("/t/acme/imports/")
    page.get_by_role("link", name="parallel_one_error.json").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#progress .tag")).to_have_text("done")
    window.press("t")
    expect(page.get_by_role("dialog")).to_contain_text("1 turn with 3 calls")
    window.press("n")
    expect(page.get_by_role("dialog")).to_be_hidden()
    window.press("t")
    expect(page.get_by_role("link", name="Keep it")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_hidden()
    window.press("t")
    expect(page.get_by_role("dialog")).to_be_visible()
    window.press("y")
    expect(page.locator("#progress .tag")).to_have_text("taken back", timeout=PATIENCE_MS)
    with tenant_scope(tenant):
        assert not ToolCall.objects.exists()
    window.check()


def test_a_preview_is_legible_and_fits(desk, member, tenant, tmp_path):
    odd = tmp_path / "odd.jsonl"
    odd.write_text(
        '{"external_id": "r", "tool_name": "book_a_table_for_the_evening", "args": {"note": "' + "long " * 99 + '"}}\n'
        '{"tool_name": "t", "cycle": -1}\n'
    )
    window = desk(member("operator"))
    page = window.open("/t/acme/imports/")
    page.locator("#files").set_input_files([odd, CORPUS / "vercel_ui/waiting_call.json"])
    page.get_by_role("button", name="Look at it").click()
    expect(page.get_by_text("1 more waits for you")).to_be_visible(timeout=PATIENCE_MS)
    expect(
        page.get_by_text("No arguments were recorded").or_(page.get_by_text("No result was recorded"))
    ).to_be_visible()
    assert amiss(page) == []
    window.press("x")
    expect(page.get_by_text("odd.jsonl was discarded")).to_be_visible()
    expect(page.get_by_role("heading", name="waiting_call.json")).to_be_visible()
    window.check()
