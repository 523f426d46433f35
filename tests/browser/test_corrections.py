"""Labels with what would have been right, by keyboard; and two people on one call."""

import json
import re

import pytest
from playwright.sync_api import expect

from quality.improve import guidelines
from quality.models import Feedback
from tenants.scope import tenant_scope
from tests.factories import TOOLS, ToolCallFactory, ToolsetFactory, TurnFactory

pytestmark = pytest.mark.browser

OFFERED = [
    *TOOLS,
    {"type": "function", "function": {"name": "get_time", "description": "Local time of a city.", "parameters": {}}},
    {"type": "function", "function": {"name": "find_city", "description": "Cities by name.", "parameters": {}}},
]


@pytest.fixture
def calls(tenant):
    with tenant_scope(tenant):
        toolset = ToolsetFactory(tools=json.dumps(OFFERED))
        args = '{"city": "Gent", "unit": "celsius"}'
        return [ToolCallFactory(toolset=toolset, turn__toolset=toolset, args=args) for _ in range(6)]


def given(tenant):
    with tenant_scope(tenant):
        return {
            (one.call_id, str(one.reviewer)): (one.label, json.loads(one.correction or "null"), one.note)
            for one in Feedback.objects.select_related("reviewer")
        }


def on(page, call):
    expect(page.locator("#label-form input[name=call]")).to_have_value(str(call.pk))


def test_each_label_is_corrected_without_the_mouse(desk, member, tenant, calls):
    ada = desk(member(user__name="Ada"))
    page = ada.open("/t/acme/review/")
    on(page, calls[0])
    ada.press("c", "4")  # bad arguments: the first field has the focus
    expect(page.locator("[data-correction] input:focus")).to_have_value("Gent")
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("Ghent")
    expect(page.locator("[data-diff] del")).to_have_text("- city: Gent")
    expect(page.locator("[data-diff] ins")).to_have_text("+ city: Ghent")
    page.keyboard.press("Control+Enter")
    on(page, calls[1])

    ada.press("c", "2")  # wrong tool: typing finds it, Enter takes it and saves
    expect(page.locator("#correct-tool")).to_be_focused()
    page.keyboard.type("time")
    expect(page.locator(".picker .active")).to_contain_text("get_time")
    page.keyboard.press("Enter")
    on(page, calls[2])

    ada.press("c", "2")  # one that nobody offered
    expect(page.locator("#correct-tool")).to_be_focused()
    page.keyboard.type("teleport")
    expect(page.locator(".picker .active")).to_contain_text("Not offered: teleport")
    page.keyboard.press("Enter")
    on(page, calls[3])

    ada.press("c", "3")  # missing tool: arrows choose it, Tab goes on to the place
    expect(page.locator("#correct-tool")).to_be_focused()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(page.locator(".picker .active")).to_contain_text("get_time")
    page.keyboard.press("Tab")
    expect(page.locator("#correct-tool")).to_have_value("get_time")
    page.locator("#correct-place").select_option("0.0")
    page.keyboard.press("Control+Enter")
    on(page, calls[4])

    ada.press("c", "5")  # other: a note, asked for once
    expect(page.locator("#note")).to_be_focused()
    page.keyboard.press("Control+Enter")
    expect(page.locator("[data-correction]")).to_contain_text("Save once more to leave it empty.")
    page.keyboard.type("odd")
    page.keyboard.press("Control+Enter")
    on(page, calls[5])

    ada.press("1")  # and nothing is asked for what was right
    expect(page.locator("[data-save-state]")).to_contain_text("Good reply")
    assert given(tenant) == {
        (calls[0].pk, "Ada"): ("bad_args", {"arguments": {"city": "Ghent", "unit": "celsius"}}, ""),
        (calls[1].pk, "Ada"): ("wrong_tool", {"tool": "get_time"}, ""),
        (calls[2].pk, "Ada"): ("wrong_tool", {"tool": "teleport", "offered": False}, ""),
        (calls[3].pk, "Ada"): ("missing_tool", {"tool": "get_time", "position": {"cycle": 0, "index": 0}}, ""),
        (calls[4].pk, "Ada"): ("other", None, "odd"),
        (calls[5].pk, "Ada"): ("good_reply", None, ""),
    }
    ada.check()


def test_a_label_is_corrected_after_it_was_given(desk, member, tenant, calls):
    ada = desk(member(user__name="Ada"))
    page = ada.open("/t/acme/review/")
    ada.press("4")
    on(page, calls[1])
    ada.press("e")
    on(page, calls[0])
    expect(page.locator("[data-correction] input:focus")).to_have_value("Gent")
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("Ghent")
    page.keyboard.press("Enter")
    on(page, calls[1])
    assert given(tenant)[calls[0].pk, "Ada"][1] == {"arguments": {"city": "Ghent", "unit": "celsius"}}
    ada.check()


def test_escape_leaves_and_faults_stay_beside_their_fields(desk, member, tenant, calls):
    ada = desk(member())
    page = ada.open("/t/acme/review/")
    ada.press("c", "2")
    expect(page.locator("#correct-tool")).to_be_focused()
    ada.press("Escape")
    expect(page.locator(".label-buttons")).to_be_visible()
    ada.press("c", "4")
    field = page.locator("[data-correction] input:focus")
    expect(field).to_have_value("Gent")
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.press("Delete")
    page.keyboard.press("Enter")
    expect(page.locator("[data-fields] .errorlist")).to_have_text("This field is required.")
    expect(page.locator("[data-fields] input").first).to_be_focused()
    page.keyboard.type("G")
    ada.press("Escape")  # something was typed: the field first
    expect(page.locator("[data-correction]")).to_be_visible()
    ada.press("Escape")
    expect(page.locator(".label-buttons")).to_be_visible()
    assert given(tenant) == {}
    ada.check()


def test_json_takes_up_what_the_fields_hold(desk, member, tenant, calls):
    ada = desk(member(user__name="Ada"))
    page = ada.open(f"/t/acme/calls/{calls[0].pk}/")
    ada.press("c", "4")
    expect(page.locator("[data-correction] input:focus")).to_have_value("Gent")
    page.keyboard.press("End")
    page.keyboard.type("!")
    page.get_by_role("button", name="Write them as JSON").click()
    expect(page.locator("#correct-json")).to_be_focused()
    assert json.loads(page.locator("#correct-json").input_value()) == {"city": "Gent!", "unit": "celsius"}
    page.locator("#correct-json").fill('{"city": "Ghent",\n"n": 12345678901234567890}')
    expect(page.locator("[data-diff] ins").first).to_contain_text("Ghent")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".labels .correction-said ins").first).to_contain_text("Ghent")
    expect(page).to_have_url(re.compile(f"/calls/{calls[0].pk}/"))  # on a call's own page it stays there
    assert given(tenant)[calls[0].pk, "Ada"][1] == {"arguments": {"city": "Ghent", "n": 12345678901234567890}}
    ada.check()


def test_a_call_is_missing_in_a_turn_without_any(desk, member, tenant):
    with tenant_scope(tenant):
        turn = TurnFactory(toolset=ToolsetFactory(tools=json.dumps(OFFERED)))
    ada = desk(member())
    page = ada.open("/t/acme/review/")
    ada.press("c", "3")
    expect(page.locator("#correct-tool")).to_be_focused()
    page.keyboard.type("weather")
    page.keyboard.press("Enter")
    expect(page.locator(".pane.empty")).to_be_visible()
    with tenant_scope(tenant):
        one = Feedback.objects.get()
    assert (one.turn_id, one.call_id, one.faults) == (turn.pk, None, ["missing:get_weather"])
    assert json.loads(one.correction) == {"tool": "get_weather", "position": {"cycle": 0, "index": 0}}
    ada.check()


def test_two_people_on_one_call_lose_nothing(desk, member, tenant, calls):
    ada, bob = desk(member(user__name="Ada")), desk(member(user__name="Bob"))
    bob.expected = {409}
    for one in (ada, bob):
        one.open("/t/acme/review/")
        one.press("c", "4")
        expect(one.page.locator("[data-correction] input:focus")).to_have_value("Gent")
    for one, city in ((ada, "Ghent"), (bob, "Gand")):
        one.page.keyboard.press("ControlOrMeta+a")
        one.page.keyboard.type(city)
        one.page.keyboard.press("Control+Enter")
        if one is ada:
            on(ada.page, calls[1])
    conflict = bob.page.locator(".conflict")
    expect(conflict).to_contain_text("Ada")
    expect(conflict.locator("ins")).to_have_text(['+ city: "Ghent"', '+ city: "Gand"'])
    assert len(given(tenant)) == 1
    bob.press("m")  # both
    on(bob.page, calls[1])
    expect(bob.page.locator("[data-save-state]")).to_contain_text("Bad arguments")
    first = {name: said[1]["arguments"]["city"] for (pk, name), said in given(tenant).items() if pk == calls[0].pk}
    assert first == {"Ada": "Ghent", "Bob": "Gand"}
    bob.open(f"/t/acme/review/?call={calls[0].pk}")
    bob.press("y")  # and then of one mind
    on(bob.page, calls[1])
    expect(bob.page.locator("[data-save-state]")).to_contain_text("Saved")
    assert given(tenant)[calls[0].pk, "Bob"] == given(tenant)[calls[0].pk, "Ada"]
    bob.open(f"/t/acme/review/?call={calls[0].pk}")
    bob.page.locator(".labels summary").click()
    expect(bob.page.locator(".history li")).to_have_count(3)
    expect(bob.page.locator(".history")).to_contain_text("Gand")  # what was said stays
    ada.check()
    bob.check()


def test_guidelines_stand_beside_the_item_from_one_to_the_next(desk, member, tenant, calls):
    admin = member("admin", user__name="Ada")
    with tenant_scope(tenant):
        guidelines.write(text="# Be kind\n\n- to callers", by=admin.user)
    ada = desk(admin)
    page = ada.open("/t/acme/review/")
    ada.press("G")
    panel = page.locator("#guidelines")
    expect(panel).to_contain_text("to callers")
    ada.press("1")
    on(page, calls[1])
    expect(panel).to_be_visible()
    ada.press("G")
    expect(panel).to_be_hidden()
    expect(page.locator("[data-save-state]")).to_contain_text("Good reply")
    with tenant_scope(tenant):
        assert Feedback.objects.get().guideline_version == 1
    ada.press("g", "q")
    expect(page.get_by_role("heading", name="Guidelines", exact=True)).to_be_visible()
    ada.press("e")
    page.get_by_label("Markdown").fill("# Be strict")
    page.get_by_role("button", name="Save as a new version").click()
    expect(page.locator(".prose")).to_have_text("Be strict")
    ada.check()
