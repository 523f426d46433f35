"""What models, tools and people wrote stays text in a real browser: nothing runs, nothing is asked for."""

import json

import pytest
from playwright.sync_api import expect

from quality.review import hinting
from tenants.scope import tenant_scope
from tests.corpus.corpus import load
from tests.factories import ToolCallFactory, TurnFactory

pytestmark = pytest.mark.browser


def bodies(place):
    return [row["raw"] for row in load("hostile_json.jsonl") if row["at"] == place and "raw" in row]


@pytest.fixture
def hostile(tenant):
    """Calls whose every text is hostile: one for each message and result of the corpus."""
    with tenant_scope(tenant):
        calls = []
        for message in bodies("message"):
            text = json.loads(message)
            name = "".join(letter for letter in text if letter >= " " and not "\ud800" <= letter <= "\udfff") or "x"
            messages = f'[{{"role":"system","content":{message}}},{{"role":"user","content":{message}}},' \
                f'{{"role":"assistant","content":{message},"tool_calls":[{{"id":"1","function":' \
                f'{{"name":{message},"arguments":{json.dumps(message)}}}}}]}}]'  # fmt: skip
            turn = TurnFactory(messages=messages, system=message, conversation_id=name)
            args = f"{{{message}:{message}}}" if message.startswith('"') else "{}"
            calls.append(ToolCallFactory(turn=turn, tool_name=name[:200], args=args, error=name, model=name))
        for result in bodies("result"):
            stored = json.dumps(result, ensure_ascii=False)
            calls.append(ToolCallFactory(result=stored, error=result.replace("\0", ""), is_error=True))
    hinting.make(tenant)
    return calls


def test_hostile_text_is_inert_on_every_page(desk, member, hostile):
    if not hostile:
        pytest.skip("the corpus is not there")
    ada = desk(member("admin"))
    ada.page.on("dialog", lambda dialog: ada.faults.append(f"dialog: {dialog.message}"))
    for call in hostile:
        page = ada.open(f"/t/acme/calls/{call.pk}/")
        expect(page.locator("#call")).to_be_visible()
        assert page.locator("main img, main iframe, main script, main object").count() == 0
        assert page.evaluate("window.violations") == []
        page.evaluate("for (const fold of document.querySelectorAll('details')) fold.open = true")
    for path in ("", "calls/", "turns/", "review/", "review/?done=1", "imports/", "export/"):
        page = ada.open(f"/t/acme/{path}")
        page.wait_for_load_state("networkidle")
        assert page.locator("main img, main iframe, main script, main object").count() == 0
        assert page.evaluate("window.violations") == []
    assert not [url for url in ada.requests if "/admin/" in url]
    ada.check()


def test_every_page_is_free_of_faults_and_fits_a_small_screen(desk, member, hostile):
    ada = desk(member("admin"), viewport={"width": 360, "height": 740})
    paths = ["", "calls/", "turns/", "pending/", "run/", "review/"]
    paths += ["imports/", "export/", "members/", "tokens/", "nothing/"]
    if hostile:
        paths.append(f"calls/{hostile[0].pk}/")
    ada.expected = {404}
    for path in paths:
        page = ada.open(f"/t/acme/{path}")
        page.wait_for_load_state("networkidle")
        overflow = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert overflow <= 0, path
        assert page.evaluate("window.violations") == [], path
    ada.check()
