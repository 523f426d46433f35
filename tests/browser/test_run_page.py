"""Turns at the screen: run from the console, decided on by keyboard, watched, stopped, labelled."""

import json
import re

import pytest
from playwright.sync_api import Page, expect

from engine.providers.wire import Completion
from quality.models import CallDecision, Feedback, ToolCall, Turn, TurnRun
from quality.turns.decide import Verdict, decide
from tenants.scope import tenant_scope
from tests.browser.look import amiss
from tests.corpus.corpus import load

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PATIENCE_MS = 30_000


def send(page: Page, text: str) -> None:
    page.wait_for_load_state()  # keys are heard once the page's scripts have run
    page.locator("textarea[name=text]").fill(text)
    page.keyboard.press("Control+Enter")
    expect(page).to_have_url(re.compile(r"/run/\d+/$"), timeout=PATIENCE_MS)


def state(page: Page, word: str) -> None:
    expect(page.locator(".turn-live .turn-state .tag")).to_have_text(word, timeout=PATIENCE_MS)


def test_a_turn_with_an_approval_in_the_middle_by_keyboard(desk, member, house):
    house.model("text_and_call,plain_text:It is sent.")
    house.tool()
    operator = member(user__name="Ada")
    ada = desk(operator)
    page = ada.open("/t/acme/")
    ada.press("g", "u")
    expect(page.get_by_text("Write to the agent").first).to_be_visible()
    send(page, "Send a note to Rome")
    expect(page.locator(".role-user .text")).to_have_text("Send a note to Rome")
    expect(page.locator(".role-assistant .text").first).to_have_text("I will look that up.", timeout=PATIENCE_MS)
    card = page.locator("[data-card]")
    expect(card).to_contain_text("pending", timeout=PATIENCE_MS)
    state(page, "awaiting")
    expect(page.locator(".while-awaiting")).to_be_visible()
    assert house.tools.count() == 0

    ada.press("Escape", "e")
    city = card.get_by_label("city")
    expect(city).to_be_focused()
    expect(city).to_have_value("Rome")
    city.fill("Oslo")
    ada.press("Control+Enter")
    expect(page.locator(".turn-call")).to_contain_text("Approved with edited arguments", timeout=PATIENCE_MS)
    expect(page.locator(".role-assistant .text").last).to_have_text("It is sent.", timeout=PATIENCE_MS)
    state(page, "done")
    expect(page.locator(".turn-call")).to_contain_text("Bad arguments")
    expect(page.locator(".turn-call")).to_contain_text("21")  # the result
    expect(page.locator(".turn-state")).to_contain_text("tokens")
    expect(page.locator(".while-awaiting")).to_be_hidden()
    assert house.tools.asked[0][3] == {"city": "Oslo"}
    with tenant_scope(house.tenant):
        label = Feedback.objects.get()
        assert (label.label, json.loads(label.correction)) == ("bad_args", {"arguments": {"city": "Oslo"}})
        assert label.reviewer == operator.user
        assert CallDecision.objects.get().decided_by == operator.user
        assert TurnRun.objects.get().channel == "page"
    ada.check()


def test_the_conversation_goes_on_and_is_there_after_a_reload(desk, member, house):
    house.model("plain_text:Hello to you.")
    ada = desk(member())
    page = ada.open("/t/acme/run/")
    send(page, "Hello")
    state(page, "done")
    send(page, "And again")
    state(page, "done")
    expect(page.locator(".turn-earlier .role-user .text")).to_have_text("Hello")
    page.reload()
    expect(page.locator(".role-user .text")).to_have_text(["Hello", "And again"])
    ada.press("Escape", "o")
    expect(page.locator(".role-user")).to_have_count(0)
    with tenant_scope(house.tenant):
        assert Turn.objects.values("conversation_id").distinct().count() == 1
    assert [message["content"] for message in house.server.asked[-1].body["messages"]] == [
        "Hello", "Hello to you.", "And again",
    ]  # fmt: skip
    ada.check()


def test_a_reload_in_the_middle_shows_all_and_follows_on(desk, member, house):
    house.model("text_and_call,plain_text:It is sent.")
    house.tool(mode="auto")
    house.tools.hold.clear()
    ada = desk(member())
    page = ada.open("/t/acme/run/")
    send(page, "Send a note to Rome")
    expect(page.locator(".turn-call .tag").first).to_have_text("running", timeout=PATIENCE_MS)
    page.reload()
    expect(page.locator(".role-assistant .text")).to_have_text("I will look that up.")
    expect(page.locator(".turn-call .tag").first).to_have_text("running")
    house.tools.hold.set()
    expect(page.locator(".role-assistant .text").last).to_have_text("It is sent.", timeout=PATIENCE_MS)
    expect(page.locator(".role-assistant")).to_have_count(2)
    state(page, "done")
    ada.check()


def test_words_are_shown_as_they_come_and_a_turn_is_stopped(desk, member, house):
    house.model("endless_stream")
    ada = desk(member())
    page = ada.open("/t/acme/run/")
    send(page, "Talk for ever")
    words = page.locator("[data-live] .text")
    expect(words).to_contain_text("and so on", timeout=PATIENCE_MS)
    state(page, "running")
    page.reload()  # in the middle of a reply: what was said is there, and it goes on
    expect(words).to_contain_text("and so on")
    before = len(words.inner_text())
    page.wait_for_function(
        "before => document.querySelector('[data-live] .text').textContent.length > before", arg=before
    )
    ada.press("Escape", "s")
    state(page, "cancelled")
    expect(page.locator(".turn-live")).to_contain_text("It was stopped.")
    ada.check()


def test_a_decision_that_another_made_meanwhile_is_said(desk, member, house):
    house.model("one_call,plain_text")
    house.tool()
    bob = member(user__name="Bob")
    ada = desk(member())
    ada.expected = {409}
    page = ada.open("/t/acme/run/")
    send(page, "Weather in Rome?")
    expect(page.locator("[data-card]")).to_be_visible(timeout=PATIENCE_MS)
    state(page, "awaiting")
    ada.press("Escape", "d")
    expect(page.get_by_label("Reason")).to_be_focused()
    with tenant_scope(house.tenant):
        call = ToolCall.objects.get()
        decide(call.turn_id, [Verdict(call.pk, "approve")], by=bob.user)
    page.keyboard.type("no")
    ada.press("Control+Enter")
    expect(page.locator(".turn-call")).to_contain_text("Bob", timeout=PATIENCE_MS)
    state(page, "done")
    with tenant_scope(house.tenant):
        assert CallDecision.objects.get().kind == "approve"
        assert not Feedback.objects.exists()
    ada.check()


def test_arguments_against_the_schema_are_told_where_they_were_written(desk, member, house):
    house.model("one_call,plain_text")
    house.tool()
    ada = desk(member())
    page = ada.open("/t/acme/run/")
    send(page, "Weather in Rome?")
    expect(page.locator("[data-card]")).to_be_visible(timeout=PATIENCE_MS)
    ada.press("Escape", "e")
    page.get_by_text("As JSON").click()
    raw = page.locator("textarea[name=arguments]")
    raw.fill('{"city": 7}')
    ada.press("Control+Enter")
    expect(page.locator(".decide [role=alert]")).to_contain_text("$.city: 7 is not of type 'string'")
    expect(raw).to_have_value('{"city": 7}')
    raw.fill('{"city": "Bergen"}')
    raw.press("Control+Enter")
    state(page, "done")
    assert house.tools.asked[0][3] == {"city": "Bergen"}
    ada.check()


def test_several_pending_calls_are_approved_at_once_by_keyboard(desk, member, house):
    house.model("one_call,plain_text")
    house.tool()
    turns = [house.turn(f"Weather in {city}?", conversation_id=city) for city in ("Rome", "Oslo", "Bern")]
    ada = desk(member())
    page = ada.open("/t/acme/pending/")
    expect(page.locator("[data-card]")).to_have_count(3, timeout=PATIENCE_MS)
    expect(page.locator("[data-card]").first).to_contain_text("Does send_note.")
    page.reload()
    expect(page.locator(".side .count")).to_have_text("3")
    ada.press("j", "x", "j", "x")
    expect(page.locator("input[name=call]:checked")).to_have_count(2)
    ada.press("A")
    expect(page.get_by_role("heading", name="Approve 2 calls?")).to_be_visible()
    ada.press("y")
    expect(page.get_by_text("2 calls approved.")).to_be_visible()
    expect(page.locator("[data-card]")).to_have_count(1)
    ada.press("d")
    page.keyboard.type("not Bern")
    page.get_by_label("Label", exact=True).select_option("other")
    page.get_by_label("Reason").press("Control+Enter")
    expect(page.locator(".turn-call")).to_contain_text("Declined")
    with tenant_scope(house.tenant):
        kinds = dict(CallDecision.objects.values_list("turn_id", "kind"))
        assert sorted(kinds.values()) == ["approve", "approve", "decline"]
        assert set(kinds) == {turn.pk for turn in turns}
        assert (Feedback.objects.get().label, Feedback.objects.get().note) == ("other", "not Bern")
    page.reload()
    expect(page.get_by_text("Nothing waits")).to_be_visible(timeout=PATIENCE_MS)
    ada.check()


def test_the_turns_own_page_is_live_and_leads_to_its_judgement(desk, member, house):
    house.model("one_call,plain_text")
    house.tool()
    turn = house.turn()
    ada, bob = desk(member()), desk(member("viewer"))
    watched = bob.open(f"/t/acme/turns/{turn.pk}/")
    page = ada.open(f"/t/acme/turns/{turn.pk}/")
    expect(page.locator("[data-card]")).to_be_visible(timeout=PATIENCE_MS)
    expect(watched.locator(".turn-call")).to_contain_text("Waits for a decision", timeout=PATIENCE_MS)
    ada.press("a")
    for one in (page, watched):
        expect(one.locator("#judgement")).to_be_visible(timeout=PATIENCE_MS)
        expect(one.get_by_text("Decided by people")).to_be_visible()
    ada.press("b")
    expect(page.locator("[data-row]")).to_have_count(1)
    ada.press("j", "Enter")
    expect(page).to_have_url(re.compile(f"/turns/{turn.pk}/$"))
    ada.check()
    bob.check()


def test_a_waiting_call_that_another_decides_on_goes_from_the_page(desk, member, house):
    house.model("one_call,plain_text")
    house.tool()
    turns = [house.turn(conversation_id=str(number)) for number in range(2)]
    ada = desk(member())
    page = ada.open("/t/acme/pending/")
    expect(page.locator("[data-card]")).to_have_count(2, timeout=PATIENCE_MS)
    with tenant_scope(house.tenant):
        call = ToolCall.objects.get(turn=turns[0])
        decide(call.turn_id, [Verdict(call.pk, "decline")], by=member().user)
    expect(page.locator("[data-card]")).to_have_count(1, timeout=PATIENCE_MS)
    ada.check()


def test_the_console_is_legible_and_fits_a_small_screen(desk, member, house):
    house.model("choose")
    house.tool()
    house.tool("get_weather", "auto", "safe", "/weather")
    calls = (
        ("get_weather", '{"city":"Rome"}'),
        ("send_note", '{"city":"Rome","x":1}'),
        ("send_note", '{"city":"Bern"}'),
    )
    house.replies(Completion("I look.", calls=calls))
    turn = house.turn(conversation_id="talk")
    ada = desk(house.admin)
    page = ada.open(f"/t/acme/run/{turn.pk}/")
    state(page, "awaiting")
    for path in (f"run/{turn.pk}/", f"turns/{turn.pk}/", "pending/", "turns/", "run/"):
        assert amiss(ada.open(f"/t/acme/{path}")) == [], path
    ada.check()


def test_what_the_model_writes_is_inert_while_it_comes_and_after(desk, member, house):
    bodies = [row["raw"] for row in load("hostile_json.jsonl") if row["at"] in ("message", "result") and "raw" in row]
    if not bodies:
        pytest.skip("the corpus is not there")
    texts = []
    for raw in bodies[:12]:
        try:
            text = json.loads(raw)
        except ValueError:
            text = raw
        texts.append(text if isinstance(text, str) else raw)
    hostile = " ".join(text.replace("\0", "").replace(",", ";") for text in texts if text.isprintable() or "<" in text)
    hostile = hostile.encode(errors="ignore").decode() + " pay\u200bpal \u202etxt.exe <img src=x onerror=alert(1)>"
    ada = desk(member())
    ada.page.on("dialog", lambda dialog: ada.faults.append(f"dialog: {dialog.message}"))
    house.model("choose")
    house.tool()
    house.replies(Completion(hostile, calls=(("send_note", json.dumps({"city": hostile})),)))
    page = ada.open("/t/acme/run/")
    send(page, hostile[:5000])
    expect(page.locator("[data-card]")).to_be_visible(timeout=PATIENCE_MS)
    for _ in range(2):
        assert page.locator("main img, main iframe, main script, main object").count() == 0
        expect(page.locator(".role-assistant .hidden-char", has_text="ZWSP").first).to_be_visible()
        page.evaluate("for (const fold of document.querySelectorAll('details')) fold.open = true")
        page.reload()
    shown = page.evaluate(
        "() => { const place = document.createElement('p'); place.append(window.inert('a\\u200bb\\u202e<b>')); "
        "return [place.textContent, ...['b', '.hidden-char'].map((one) => place.querySelectorAll(one).length)] }"
    )
    assert shown == ["aZWSPbRLO<b>", 0, 2]
    ada.open("/t/acme/pending/")
    expect(page.locator("[data-card]")).to_be_visible()
    assert page.locator("main img, main iframe, main script, main object").count() == 0
    ada.open("/t/acme/turns/")
    expect(page.locator("[data-row]")).to_have_count(1)
    assert page.locator("main img, main iframe, main script, main object").count() == 0
    ada.check()


def test_without_a_stream_the_page_asks_now_and_then(desk, member, house):
    house.model("one_call,plain_text:It is sent.")
    house.tool()
    ada = desk(member())
    ada.page.route("**/events?*", lambda route: route.fulfill(status=204))  # as a process without streams answers
    page = ada.open("/t/acme/run/")
    send(page, "Weather in Rome?")
    expect(page.locator("[data-card]")).to_be_visible(timeout=PATIENCE_MS)
    ada.press("Escape", "a")
    expect(page.locator(".role-assistant .text").last).to_have_text("It is sent.", timeout=PATIENCE_MS)
    state(page, "done")
    ada.check()


def test_without_javascript_a_turn_is_run_and_decided_on(desk, member, house):
    house.model("one_call,plain_text:It is sent.")
    house.tool()
    ada = desk(member(), java_script_enabled=False)
    page = ada.open("/t/acme/run/")
    page.locator("textarea[name=text]").fill("Weather in Rome?")
    page.get_by_role("button", name="Send").click()
    awaited(page, "[data-card]")
    page.get_by_role("button", name=re.compile("^Approve a$")).click()
    expect(page.get_by_text("send_note: approved")).to_be_visible()
    awaited(page, ".turn-state .tag.done")
    expect(page.locator(".role-assistant .text").last).to_have_text("It is sent.")


def awaited(page: Page, selector: str) -> None:
    """Reload, as one does without JavaScript, until it is there."""
    for _ in range(60):
        if page.locator(selector).count():
            return
        page.wait_for_timeout(500)
        page.reload()
    expect(page.locator(selector)).to_be_visible()
