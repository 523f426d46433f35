"""A working day at the screen, by keyboard where a person would use it."""

import json
import re

import pytest
from playwright.sync_api import expect

from quality.models import Feedback, FeedbackEvent, Label, ToolCall
from quality.review.items import item_of_call
from quality.review.labelling import record_label
from tenants.scope import tenant_scope
from tests.factories import LATEST, ToolCallFactory, TurnFactory, UserFactory

pytestmark = pytest.mark.browser


def log(number):
    """A log of chat completions with this many calls."""
    for index in range(number):
        call = {"id": f"c{index}", "type": "function",
                "function": {"name": "get_order", "arguments": json.dumps({"number": index})}}  # fmt: skip
        yield json.dumps(
            {
                "messages": [
                    {"role": "user", "content": f"Where is order {index}?"},
                    {"role": "assistant", "content": None, "tool_calls": [call]},
                    {"role": "tool", "tool_call_id": f"c{index}", "content": '{"status":"sent"}'},
                    {"role": "assistant", "content": "It was sent."},
                ]
            }
        )


@pytest.fixture
def calls(tenant):
    """Twelve calls, newest first."""
    with tenant_scope(tenant):
        return [ToolCallFactory(tool_name="get_time" if number % 3 == 2 else "get_weather") for number in range(12)]


def labels(tenant):
    with tenant_scope(tenant):
        return {feedback.call_id: feedback.label for feedback in Feedback.objects.all()}


def current(page):
    """Id of the call on the screen."""
    return int(page.locator("#label-form input[name=call]").input_value())


def saved(page, word, url):
    """The word of the last label stands there, and the next call is on the screen."""
    expect(page.locator("[data-save-state]")).to_contain_text(word)
    expect(page).to_have_url(re.compile(url))


def test_from_signing_in_to_a_labelled_call(desk, member, tenant, worker, tmp_path):
    admin = member("admin", user=UserFactory(email="ada@example.com", password="a long password"))
    file = tmp_path / "traces.jsonl"
    file.write_text("\n".join([*log(3), '{"messages": 7}']))
    ada = desk()
    page = ada.open("/")
    page.get_by_label("E-mail").fill("ada@example.com")
    page.get_by_label("Password").fill("a long password")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    expect(page.get_by_text("Start with your agent's traces")).to_be_visible()

    ada.press("g", "i")
    page.set_input_files("#files", file)
    ada.press("Enter")  # the button has the focus once a file is chosen
    expect(page.get_by_text("Nothing of it is stored yet")).to_be_visible(timeout=30_000)
    ada.press("i")
    expect(page.locator(".tag.done")).to_be_visible(timeout=30_000)
    row = page.locator(".issues tbody tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("4")  # the line
    with page.expect_download() as download:
        ada.press("d")
    assert json.loads(download.value.path().read_text())["line"] == 4

    ada.press("g", "c")
    expect(page.locator("[data-row]")).to_have_count(3)
    ada.press("j", "j", "k", "Enter")
    expect(page.get_by_text("It was sent.")).to_be_visible()
    ada.press("1")
    expect(page.locator(".labels")).to_contain_text("Good reply")
    assert len(labels(tenant)) == 1

    ada.press("g", "e")
    expect(page.get_by_role("heading", name="Export")).to_be_visible()
    with page.expect_download() as download:
        ada.press("d")
    *records, trailer = [json.loads(line) for line in download.value.path().read_text().splitlines()]
    assert trailer["count"] == len(records) == 3
    assert {record["toolName"] for record in records} == {"get_order"}
    assert admin.user.email == "ada@example.com"
    ada.check()


def test_ten_calls_are_labelled_without_the_mouse(desk, member, tenant, calls):
    ada = desk(member())
    page = ada.open("/t/acme/")
    ada.press("g", "r")
    expect(page).to_have_url(re.compile("/review/"))
    keys = ["1", "2", "3", "4", "5"] * 2
    for number, key in enumerate(keys):
        assert current(page) == calls[number].pk
        if key == "5":
            ada.press("n")
            page.keyboard.type("1 odd thing, see j and k")
            ada.press("Escape")
        ada.press(key)
        expect(page.locator("#label-form input[name=call]")).to_have_value(str(calls[number + 1].pk))
    expect(page.locator("[data-save-state]")).to_contain_text("Other")
    assert labels(tenant) == {calls[number].pk: Label.values[int(key) - 1] for number, key in enumerate(keys)}
    with tenant_scope(tenant):
        assert set(Feedback.objects.filter(label="other").values_list("note", flat=True)) == {
            "1 odd thing, see j and k"
        }
        assert FeedbackEvent.objects.count() == 10
    ada.check()


def test_undo_skip_and_moving(desk, member, tenant, calls):
    ada = desk(member())
    page = ada.open("/t/acme/review/?tool=get_weather")
    ada.press("2")
    saved(page, "Wrong tool", f"tool=get_weather&call={calls[1].pk}$")
    ada.press("s")
    expect(page).to_have_url(re.compile(f"call={calls[3].pk}$"))  # calls[2] is another tool
    ada.press("k")
    expect(page).to_have_url(re.compile(f"call={calls[1].pk}$"))
    ada.press("k")
    expect(page).to_have_url(re.compile(f"call={calls[0].pk}$"))  # labelled, and still to be looked at
    expect(page.locator("button[aria-pressed=true]")).to_contain_text("Wrong tool")
    ada.press("j")
    expect(page).to_have_url(re.compile(f"call={calls[1].pk}$"))
    ada.press("u")
    expect(page).to_have_url(re.compile(f"call={calls[0].pk}$"))
    expect(page.locator("[data-save-state]")).to_contain_text("Undone: Wrong tool on get_weather")
    assert labels(tenant) == {}
    page.go_back()
    expect(page).to_have_url(re.compile(f"call={calls[1].pk}$"))
    expect(page.locator(".side")).to_be_visible()
    expect(page.locator("#review")).to_have_count(1)
    ada.check()


def test_keys_are_silent_while_typing_and_in_the_sheet_of_keys(desk, member, tenant, calls):
    ada = desk(member())
    page = ada.open("/t/acme/review/")
    ada.press("n")
    page.keyboard.type("12345 jksu?")
    expect(page.locator("#note")).to_have_value("12345 jksu?")
    ada.press("Escape", "?")
    expect(page.locator("dialog")).to_be_visible()
    ada.press("1", "j", "s")
    ada.press("Escape")
    expect(page.locator("dialog")).to_be_hidden()
    assert current(page) == calls[0].pk
    assert labels(tenant) == {}
    page.keyboard.press("Control+1")
    ada.press("r")
    expect(page.locator("details.raw")).to_have_attribute("open", "")
    assert labels(tenant) == {}
    ada.check()


def test_two_reviewers_meet_on_one_call(desk, member, tenant, calls):
    ada, bob = desk(member(user__name="Ada")), desk(member(user__name="Bob"))
    ada.expected = {409}
    for one in (ada, bob):
        one.open("/t/acme/review/")
    bob.press("1")
    saved(bob.page, "Good reply", f"call={calls[1].pk}")
    ada.press("4")
    conflict = ada.page.locator(".conflict")
    expect(conflict).to_contain_text("Bob")
    expect(conflict).to_contain_text("Good reply")
    expect(conflict).to_contain_text("Bad arguments")
    assert list(labels(tenant).values()) == ["good_reply"]
    ada.press("m")
    saved(ada.page, "Bad arguments", f"call={calls[1].pk}")
    with tenant_scope(tenant):
        given = Feedback.objects.filter(call=calls[0]).values_list("reviewer__name", "label")
        assert sorted(given) == [("Ada", "bad_args"), ("Bob", "good_reply")]
    ada.check()
    bob.check()


def test_theirs_can_be_kept(desk, member, tenant, calls):
    other = member()
    ada = desk(member())
    ada.expected = {409}
    page = ada.open("/t/acme/review/")
    with tenant_scope(tenant):
        record_label(item=item_of_call(calls[0].pk), reviewer=other.user, label=Label.WRONG_TOOL)
    ada.press("1")
    expect(page.locator(".conflict")).to_be_visible()
    ada.press("t")
    expect(page.locator(".conflict")).to_be_hidden()
    assert current(page) == calls[1].pk
    assert labels(tenant) == {calls[0].pk: "wrong_tool"}


def test_a_label_that_could_not_be_sent_says_so_and_can_be_sent_again(desk, member, tenant, calls):
    ada = desk(member())
    page = ada.open("/t/acme/review/")
    page.route("**/review/label/", lambda route: route.abort())
    ada.press("3")
    state = page.locator("[data-save-state]")
    expect(state).to_contain_text("Not saved")
    assert labels(tenant) == {}
    assert current(page) == calls[0].pk
    page.unroute("**/review/label/")
    ada.press("Enter")  # "Send again" has the focus
    saved(page, "Missing tool", f"call={calls[1].pk}")
    assert labels(tenant) == {calls[0].pk: "missing_tool"}


def test_a_key_pressed_twice_labels_one_call(desk, member, tenant, calls):
    ada = desk(member())
    page = ada.open("/t/acme/review/")
    page.evaluate(
        """() => { for (let i = 0; i < 3; i++)
             document.dispatchEvent(new KeyboardEvent("keydown", {key: "1", bubbles: true})); }"""
    )
    saved(page, "Good reply", f"call={calls[1].pk}")
    assert labels(tenant) == {calls[0].pk: "good_reply"}
    ada.check()


def test_the_filter_works_by_keyboard_and_stands_in_the_address(desk, member, calls):
    ada = desk(member("viewer"))
    page = ada.open("/t/acme/calls/")
    ada.press("/")
    expect(page.locator("#f-tool")).to_be_focused()
    page.keyboard.type("get_t")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"\?tool=get_time$"))
    expect(page.locator("[data-row]")).to_have_count(4)
    page.reload()
    expect(page.locator("[data-row]")).to_have_count(4)
    ada.press("c")
    expect(page.locator("[data-row]")).to_have_count(12)
    ada.check()


def test_who_was_signed_out_sees_no_data_by_the_back_button(desk, member, calls):
    ada = desk(member())
    page = ada.open("/t/acme/calls/")
    expect(page.locator("[data-row]")).to_have_count(12)
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("E-mail")).to_be_visible()
    page.go_back()
    expect(page.get_by_label("E-mail")).to_be_visible()
    expect(page.locator("[data-row]")).to_have_count(0)


def test_reading_works_without_javascript(desk, member, tenant, calls):
    ada = desk(member(), java_script_enabled=False)
    page = ada.open("/t/acme/calls/")
    page.get_by_label("Tool").select_option("get_time")
    page.get_by_role("button", name="Filter").click()
    assert "tool=get_time" in page.url
    page.locator("[data-row]").first.click()
    expect(page.locator("#call")).to_be_visible()
    page.goto(f"{ada.url}/t/acme/review/")
    page.get_by_role("button", name="Wrong tool").click()
    assert page.url.endswith(f"call={calls[1].pk}")
    assert labels(tenant) == {calls[0].pk: "wrong_tool"}
    page.get_by_role("button", name="Undo").click()
    assert page.url.endswith(f"call={calls[0].pk}")
    assert labels(tenant) == {}


def test_what_is_folded_or_cut_comes_when_asked_for(desk, member, tenant):
    long = json.dumps([{"role": "user", "content": "word " * 1500 + "the end"}])
    with tenant_scope(tenant):
        earlier = TurnFactory(conversation_id="talk", started_at=LATEST.replace(hour=1), messages=long)
        call = ToolCallFactory(turn=TurnFactory(conversation_id="talk"))
    ada = desk(member("viewer"))
    page = ada.open(f"/t/acme/calls/{call.pk}/")
    page.get_by_text("1 earlier turn").click()
    page.locator("details.turn summary").first.click()
    expect(page.locator(".turn-body .message")).to_have_count(1)
    expect(page.locator(".turn-body")).not_to_contain_text("the end")
    page.get_by_role("link", name="Show all").click()
    expect(page.locator(".turn-body .text").first).to_contain_text("the end")
    assert earlier.pk
    ada.check()


def test_theme_and_zone_are_kept(desk, member, calls):
    ada = desk(member(), timezone_id="Asia/Tokyo")
    page = ada.open("/t/acme/calls/")
    page.reload()
    expect(page.locator(".zone")).to_have_text("Asia/Tokyo")
    expect(page.locator("thead")).to_contain_text("JST")
    ada.press("g", "t")
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    ada.press("g", "t")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    background = page.evaluate("getComputedStyle(document.body.parentElement).backgroundColor")
    assert sum(int(part) for part in re.findall(r"\d+", background)[:3]) < 150
    with tenant_scope(calls[0].tenant_id):
        assert ToolCall.objects.count() == 12
    ada.check()
