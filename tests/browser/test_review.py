"""Review at the speed of the keys: what is shown ahead, what survives, what is refused, and whose keys they are."""

import json
import re
import statistics

import pytest
from playwright.sync_api import expect

from quality.models import Feedback, FeedbackEvent, Label
from quality.review.items import item_of_call
from quality.review.labelling import record_label
from tenants.scope import tenant_scope
from tests.browser.look import serious
from tests.factories import TOOLS, ToolCallFactory, ToolsetFactory

pytestmark = pytest.mark.browser

ROWS = json.dumps([{"id": number, "name": f"item {number}"} for number in range(60)])
TREE = json.dumps({"order": {"lines": [{"sku": f"needle-{n}"} for n in range(90)], "deep": {"a": {"b": {"c": 7}}}}})


@pytest.fixture
def make_calls(tenant):
    """`make_calls(12)`: so many calls, newest first."""

    def make(number, **fields):
        with tenant_scope(tenant):
            toolset = ToolsetFactory(tools=json.dumps(TOOLS))
            made = {
                "toolset": toolset,
                "turn__toolset": toolset,
                "args": '{"city": "Gent", "unit": "celsius"}',
            } | fields
            return [ToolCallFactory(**made) for _ in range(number)]

    return make


class Held:
    """Labels that have left the page and reach the server when they are let go."""

    def __init__(self, page):
        self.routes, self.is_holding = [], True
        page.route("**/review/label/", self.take)

    def take(self, route):
        if self.is_holding:
            self.routes.append(route)
        else:
            route.continue_()

    def let_go(self):
        self.is_holding = False
        for route in self.routes:
            route.continue_()


def said(tenant):
    with tenant_scope(tenant):
        return {
            one.call_id: (one.label, one.note, json.loads(one.correction or "null")) for one in Feedback.objects.all()
        }


def on(page, call):
    expect(page.locator("#review")).to_have_attribute("data-item", f"call:{call.pk}")


def at_rest(page):
    """All labels are saved, and what comes next is there."""
    expect(page.locator("[data-save-state]")).not_to_have_text("Saving…")
    page.wait_for_load_state("networkidle")


def test_a_hundred_labels_by_keyboard_alone(desk, member, tenant, make_calls):
    calls = make_calls(104)
    ada = desk(member())
    page = ada.open("/t/acme/review/")
    expected, at = {}, 0
    while len(expected) < 100:
        call, key = calls[at], 1 + at % 5
        on(page, call)
        if at % 25 == 7:  # over, back, over again, and back once more: it is labelled after all
            ada.press("s")
            on(page, calls[at + 1])
            ada.press("S")
            on(page, call)
        if at % 20 == 3:  # a slip, taken back
            ada.press("2")
            on(page, calls[at + 1])
            ada.press("u")
            on(page, call)
            ada.press("U")
            expect(page.locator("[data-save-state]")).to_contain_text("Redone: Wrong tool")
            page.keyboard.press("Control+z")
            expect(page.locator("[data-save-state]")).to_contain_text("Undone: Wrong tool")
        note, correction = "", None
        if at % 10 == 4:
            ada.press("n")
            note = f"note {at}, see j and 1"
            page.keyboard.type(note)
            ada.press("Escape")
        if at % 25 == 11:
            ada.press("c", "4")
            expect(page.locator("[data-correction] input:focus")).to_have_value("Gent")
            page.keyboard.press("ControlOrMeta+a")
            page.keyboard.type(f"City {at}")
            page.keyboard.press("Control+Enter")
            key, correction = 4, {"arguments": {"city": f"City {at}", "unit": "celsius"}}
        else:
            ada.press(str(key))
        expected[call.pk] = (Label.values[key - 1], note, correction)
        at += 1
    on(page, calls[at])
    at_rest(page)
    assert said(tenant) == expected
    ada.check()


SWAPS = """
async ([rounds, bare]) => {
  const frame = () => new Promise(requestAnimationFrame);
  const quiet = async (test) => { while (!test()) await new Promise((go) => setTimeout(go, 5)); };
  const times = [];
  for (let round = 0; round < rounds; round++) {
    const review = document.getElementById("review");
    if (!bare) {
      await quiet(() => !("settling" in review.dataset) && window.isAhead?.(review.dataset.following));
    }
    const next = bare ? review.cloneNode(true) : null;
    await frame();
    const start = performance.now();
    if (bare) review.replaceWith(next);
    else document.dispatchEvent(new KeyboardEvent("keydown", { key: "1", bubbles: true }));
    await quiet(() => document.getElementById("review") !== review);
    await frame();
    await frame();
    times.push(performance.now() - start);
  }
  return times;
}
"""
AHEAD = """
const told = window.fetch;
const there = new Set();
window.fetch = async (address, options) => {
  const answer = await told(address, options);
  if (options?.headers?.["X-Ahead"] && options?.method !== "POST") {
    const text = answer.text.bind(answer);
    answer.text = async () => { const read = await text(); setTimeout(() => there.add(address), 0); return read; };
  }
  return answer;
};
window.isAhead = (address) => there.has(address);
"""


def test_the_next_call_is_there_as_soon_as_a_bare_page_swaps(desk, member, make_calls):
    """From the key to the frame that shows the next call, against the same markup swapped on a page without style or
    script: what we add must be small, whatever machine this is."""
    make_calls(24)
    ada = desk(member())
    ada.context.add_init_script(AHEAD)
    page = ada.open("/t/acme/review/")
    markup = page.locator("#review").evaluate("one => one.outerHTML")
    bare = ada.context.new_page()
    bare.set_content(markup)
    floor = statistics.median(bare.evaluate(SWAPS, [15, True]))
    bare.close()
    ours = statistics.median(page.evaluate(SWAPS, [15, False]))
    assert ours / floor < 5, f"{ours:.1f} ms against {floor:.1f} ms"
    at_rest(page)
    ada.check()


def test_the_next_call_does_not_wait_for_the_label_to_be_saved(desk, member, tenant, make_calls):
    calls = make_calls(4)
    ada = desk(member())
    page = ada.open("/t/acme/review/")
    page.wait_for_load_state("networkidle")
    held = Held(page)
    ada.press("1")
    on(page, calls[1])
    expect(page.locator("[data-save-state]")).to_have_text("Saving…")
    expect(page).to_have_url(re.compile(f"call={calls[1].pk}$"))
    assert said(tenant) == {}
    ada.press("2")  # the second one waits behind the first
    on(page, calls[2])
    assert len(held.routes) == 1
    held.let_go()
    expect(page.locator("[data-save-state]")).to_contain_text("Wrong tool")
    assert {pk: label for pk, (label, _, _) in said(tenant).items()} == {
        calls[0].pk: "good_reply",
        calls[1].pk: "wrong_tool",
    }
    assert page.locator(f"[data-stop='call:{calls[0].pk}'] .label-good_reply").count() == 1
    ada.check()


def test_a_label_that_fails_brings_its_call_back_with_all_that_was_written(desk, member, tenant, make_calls):
    calls = make_calls(4)
    ada = desk(member())
    ada.expected = {503}
    page = ada.open("/t/acme/review/")
    page.wait_for_load_state("networkidle")
    page.route("**/review/label/", lambda route: route.fulfill(status=503))
    ada.press("n")
    page.keyboard.type("look at the city")
    ada.press("Escape", "4")
    state = page.locator("[data-save-state]")
    expect(state).to_contain_text("Not saved: the server answered 503.")
    on(page, calls[0])
    expect(page.locator("#note")).to_have_value("look at the city")
    ada.press("1")  # nothing is labelled past it
    on(page, calls[0])
    assert said(tenant) == {}
    page.unroute("**/review/label/")
    page.get_by_role("button", name="Send again").click()
    on(page, calls[1])
    expect(state).to_contain_text("Bad arguments")
    assert said(tenant) == {calls[0].pk: ("bad_args", "look at the city", None)}


def test_a_label_is_refused_when_another_call_is_on_the_screen(desk, member, tenant, make_calls):
    calls = make_calls(3)
    ada = desk(member())
    ada.expected = {409}
    page = ada.open("/t/acme/review/")
    page.wait_for_load_state("networkidle")
    for prepared in ("ahead", "htmx"):
        name = f"call:{calls[1].pk}"
        page.evaluate(f"document.getElementById('review').dataset.item = '{name}'")
        if prepared == "htmx":  # the way without anything asked ahead
            page.evaluate("document.getElementById('review').dataset.following = ''")
        ada.press("1")
        expect(page.get_by_role("alert")).to_contain_text("Another item was on the screen")
        assert said(tenant) == {}
        page.reload()
        page.wait_for_load_state("networkidle")
    ada.press("1")
    on(page, calls[1])
    at_rest(page)
    assert list(said(tenant)) == [calls[0].pk]


def test_drafts_survive_moving_and_reloading_and_end_with_the_label(desk, member, tenant, make_calls):
    calls = make_calls(4)
    ada = desk(member())
    page = ada.open("/t/acme/review/")
    ada.press("n")
    page.keyboard.type("half a thought")
    ada.press("Escape", "j")
    on(page, calls[1])
    expect(page.locator("#note")).to_have_value("")
    ada.press("k")
    on(page, calls[0])
    expect(page.locator("#note")).to_have_value("half a thought")
    expect(page.get_by_text("Your draft, not saved yet.")).to_be_visible()
    ada.press("c", "4")
    expect(page.locator("[data-correction] input:focus")).to_have_value("Gent")
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("Ghent")
    expect(page.locator("[data-diff] ins")).to_have_text("+ city: Ghent")
    page.reload()
    expect(page.locator("#note")).to_have_value("half a thought")
    page.get_by_role("link", name="Go on with your correction: Bad arguments").click()
    expect(page.locator("[data-correction] [data-name=city]")).to_have_value("Ghent")
    expect(page.locator("[data-diff] ins")).to_have_text("+ city: Ghent")
    page.locator("[data-correction] [data-name=city]").focus()
    page.keyboard.press("Control+Enter")
    on(page, calls[1])
    at_rest(page)
    assert said(tenant) == {
        calls[0].pk: ("bad_args", "half a thought", {"arguments": {"city": "Ghent", "unit": "celsius"}})
    }
    assert page.evaluate("Object.keys(localStorage).filter((key) => key.startsWith('draft '))") == []
    ada.press("n")
    page.keyboard.type("never mind")
    expect(page.get_by_text("Your draft, not saved yet.")).to_be_visible()
    page.get_by_role("button", name="Discard").click()
    page.reload()
    expect(page.locator("#note")).to_have_value("")
    ada.check()


def test_staying_is_kept_and_can_be_had_once(desk, member, tenant, make_calls):
    calls = make_calls(4)
    me = member()
    ada = desk(me)
    page = ada.open("/t/acme/review/")
    ada.press("l", "3")  # once
    expect(page.locator("button[aria-pressed=true]")).to_contain_text("Missing tool")
    on(page, calls[0])
    ada.press("1")
    on(page, calls[1])
    ada.press("A")  # from now on
    expect(page.get_by_label("Stay after the label")).to_be_checked()
    ada.press("2")
    expect(page.locator("button[aria-pressed=true]")).to_contain_text("Wrong tool")
    on(page, calls[1])
    page.reload()
    ada.press("l", "4")  # but this once go on
    on(page, calls[2])
    at_rest(page)
    me.user.refresh_from_db()
    assert me.user.review_settings["advance"] is False
    assert [said(tenant)[call.pk][0] for call in calls[:2]] == ["good_reply", "bad_args"]
    ada.check()


def test_keys_are_ones_own_and_never_two_actions(desk, member, tenant, make_calls):
    calls = make_calls(3)
    me = member()
    ada = desk(me)
    ada.expected = {422}
    page = ada.open("/account/keys/")
    field = page.get_by_label("Good reply")
    field.focus()
    page.keyboard.press("s")
    page.keyboard.press("Enter")
    fault = page.locator("#fault-good_reply")
    expect(fault).to_contain_text("s is taken: skip to the next without a label")
    for key, words in (("g", "goes to a page"), ("?", "shows the keys")):
        page.get_by_label("Good reply").focus()
        page.keyboard.press(key)
        page.keyboard.press("Enter")
        expect(page.locator("#fault-good_reply")).to_contain_text(words)
    me.user.refresh_from_db()
    assert me.user.review_settings == {}
    page.get_by_label("Good reply").focus()
    page.keyboard.press("q")
    page.get_by_label("skip to the next without a label").focus()
    page.keyboard.press("F8")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_contain_text("Your keys are set.")
    ada.open("/t/acme/review/")
    expect(page.get_by_role("button", name="q Good reply")).to_be_visible()
    ada.press("1")
    on(page, calls[0])
    ada.press("F8")
    on(page, calls[1])
    ada.press("q")
    on(page, calls[2])
    at_rest(page)
    assert said(tenant) == {calls[1].pk: ("good_reply", "", None)}
    ada.press("?")
    expect(page.locator("#keys")).to_contain_text(re.compile(r"q\s*Good reply"))
    page.get_by_role("link", name="Change your keys").click()
    page.get_by_role("button", name="Reset to the usual keys").click()
    ada.open("/t/acme/review/")
    expect(page.get_by_role("button", name="1 Good reply")).to_be_visible()
    assert not ada.faults


def test_values_are_searched_copied_and_loaded_by_keyboard(desk, member, make_calls):
    calls = make_calls(2, result=TREE)
    ada = desk(member("viewer"), permissions=["clipboard-read", "clipboard-write"])
    page = ada.open(f"/t/acme/review/?call={calls[0].pk}")
    ada.press("/")
    expect(page.locator("#find")).to_be_focused()
    page.keyboard.type("needle-5")
    count = page.locator("[data-find-count]")
    expect(count).to_have_text("1 of 11")  # 5, 50 to 59
    expect(page.get_by_text("needle-5", exact=True)).to_be_visible()  # it was folded
    page.keyboard.press("F3")
    expect(count).to_have_text("2 of 11")
    page.keyboard.press("Shift+F3")
    page.keyboard.press("Shift+Enter")
    expect(count).to_have_text("11 of 11")
    page.keyboard.press("Escape")
    expect(page.locator("#find")).to_be_hidden()

    page.locator("[data-branch] [data-at='/order/lines/5/sku']").focus()
    page.keyboard.press("Control+Shift+c")
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == "/order/lines/5/sku"
    expect(page.get_by_role("button", name="copy path")).to_be_visible()  # as it was
    page.keyboard.press("Control+c")
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == "needle-5"
    page.keyboard.press("ArrowUp")
    expect(page.locator("[data-at='/order/lines/5']")).to_be_focused()

    page.get_by_role("link", name="Load").first.click()  # the lines past the sixtieth
    expect(page.locator("[data-at='/order/lines/89/sku']")).to_have_count(1)
    ada.check()


def test_a_list_of_flat_objects_is_a_table_and_right_to_left_text_stays_in_its_place(desk, member, make_calls, tenant):
    rows = [{"שם": "שלום", "n": 1}, {"שם": "مرحبا", "n": 2}]
    (call,) = make_calls(1, result=json.dumps(rows, ensure_ascii=False))
    page = desk(member("viewer")).open(f"/t/acme/calls/{call.pk}/")
    table = page.locator("table.flat")
    expect(table.locator("thead th")).to_have_text(["Row", "שם", "n"])
    expect(table.locator("tbody tr")).to_have_count(2)
    assert table.locator(".json-string").first.evaluate("one => getComputedStyle(one).direction") == "rtl"
    assert table.evaluate("one => getComputedStyle(one).direction") == "ltr"


def test_answers_stand_side_by_side_and_one_key_takes_one(desk, member, tenant, make_calls):
    calls = make_calls(2)
    ada, bob = member(user__name="Ada"), member(user__name="Bob")
    correction = '{"arguments": {"city": "Ghent", "unit": "celsius"}}'
    with tenant_scope(tenant):
        item = item_of_call(calls[0].pk)
        record_label(item=item, reviewer=ada.user, label="wrong_tool", note="not this one")
        record_label(item=item, reviewer=bob.user, label="bad_args", correction=correction)
    eve = desk(member(user__name="Eve"))
    page = eve.open(f"/t/acme/review/?call={calls[0].pk}")
    columns = page.locator(".answer")
    expect(columns).to_have_count(2)
    expect(columns.nth(0)).to_contain_text("not this one")
    expect(columns.nth(1).locator("ins")).to_have_text('+ city: "Ghent"')
    eve.press("7")
    on(page, calls[1])
    at_rest(page)
    with tenant_scope(tenant):
        mine = Feedback.objects.get(reviewer__name="Eve")
    assert (mine.label, json.loads(mine.correction)) == ("bad_args", json.loads(correction))
    eve.check()


def test_what_is_written_keeps_the_focus_on_a_small_screen_while_a_label_is_saved(desk, member, tenant, make_calls):
    calls = make_calls(3)
    ada = desk(member(), viewport={"width": 390, "height": 844})
    page = ada.open("/t/acme/review/")
    page.wait_for_load_state("networkidle")
    held = Held(page)
    ada.press("1")
    on(page, calls[1])
    ada.press("n")
    page.keyboard.type("first ")
    held.let_go()
    expect(page.locator("[data-save-state]")).to_contain_text("Good reply")
    page.set_viewport_size({"width": 390, "height": 500})  # the keyboard of a phone comes up
    page.keyboard.type("second")
    expect(page.locator("#note")).to_be_focused()
    expect(page.locator("#note")).to_have_value("first second")
    ada.check()


def test_nothing_moves_for_who_asked_for_that(desk, member, make_calls):
    calls = make_calls(3)
    ada = desk(member(), reduced_motion="reduce")
    page = ada.open("/t/acme/review/")
    ada.press("1")
    on(page, calls[1])
    assert page.evaluate("document.getAnimations().length") == 0
    moving = (
        "[...document.querySelectorAll('*')].filter((one) => getComputedStyle(one).transitionDuration !== '0s').length"
    )
    assert page.evaluate(moving) == 0


def test_axe_finds_nothing_serious(desk, member, tenant, make_calls):
    rows, tree = (
        make_calls(1, result=ROWS)[0],
        make_calls(1, result=TREE, args='{"unit": "kelvin", "x": {"y": [1]}}')[0],
    )
    other, third = member(user__name="Bob"), member(user__name="Eve")
    with tenant_scope(tenant):
        for reviewer, label in ((other, "wrong_tool"), (third, "other")):
            record_label(item=item_of_call(rows.pk), reviewer=reviewer.user, label=label, note="seen")
    ada = desk(member())
    for path in (
        f"/t/acme/review/?call={rows.pk}",
        f"/t/acme/review/?call={tree.pk}",
        f"/t/acme/review/?call={tree.pk}&correct=bad_args",
        f"/t/acme/review/?call={tree.pk}&correct=missing_tool",
        "/t/acme/review/?done=1",
        f"/t/acme/calls/{rows.pk}/",
        "/account/keys/",
    ):
        page = ada.open(path)
        page.evaluate("for (const fold of document.querySelectorAll('main details:not(.act)')) fold.open = true")
        if "review/?call" in path:
            page.evaluate("document.querySelector('[data-find]').hidden = false")
        assert serious(page) == [], path


def test_undo_waits_for_the_label_before_it(desk, member, tenant, make_calls):
    calls = make_calls(3)
    ada = desk(member())
    page = ada.open("/t/acme/review/")
    page.wait_for_load_state("networkidle")
    ada.press("1")
    on(page, calls[1])
    at_rest(page)
    held = Held(page)
    ada.press("2")
    on(page, calls[2])
    ada.press("u")  # means the label that is still on its way
    held.let_go()
    expect(page.locator("[data-save-state]")).to_contain_text("Undone")
    with tenant_scope(tenant):
        order = list(FeedbackEvent.objects.order_by("pk").values_list("call_id", "action"))
    assert order == [(calls[0].pk, "label"), (calls[1].pk, "label"), (calls[1].pk, "undo")]
    ada.check()
