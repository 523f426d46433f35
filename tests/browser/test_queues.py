"""Queues with two people at work: nobody gets the other's call, nobody sees the other's answer before time, and all of
it goes by keys."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from quality.models import Assignment, Feedback, QueueEntry, ReviewQueue, ToolCall
from quality.review.items import item_of_call
from quality.review.labelling import record_label
from quality.review.queues import adding, adjudication, making
from tenants.models import Membership, Role, Tenant, User
from tenants.scope import tenant_scope
from tests.browser.conftest import Desk
from tests.browser.look import amiss
from tests.factories import ToolCallFactory

pytestmark = pytest.mark.browser


@pytest.fixture
def lead(member: Callable[..., Membership]) -> Membership:
    return member(Role.ADMIN, user__name="Lea")


@pytest.fixture
def ada(member: Callable[..., Membership]) -> Membership:
    return member(user__name="Ada")


@pytest.fixture
def bob(member: Callable[..., Membership]) -> Membership:
    return member(user__name="Bob")


@pytest.fixture
def make_queue(tenant: Tenant, lead: Membership) -> Callable[..., tuple[ReviewQueue, list[ToolCall]]]:
    """`make_queue(4, labels_needed=2)`: a queue of so many new calls, newest first, each of a tool of its own."""

    def make(number: int, **said: Any) -> tuple[ReviewQueue, list[ToolCall]]:
        with tenant_scope(tenant):
            calls = [ToolCallFactory(tool_name=f"tool_{place}") for place in range(number)]
            queue = making.keep_queue(making.QueueData(**{"name": "Nightly", **said}), actor=lead.user)
            adding.add_items(queue, [item_of_call(call.pk) for call in calls], actor=lead.user)
        return queue, calls

    return make


def shown(page: Page) -> str:
    return page.locator("#review").get_attribute("data-item") or ""


def settled(page: Page, but: str) -> str:
    """The item on the screen once it is another than `but`."""
    expect(page.locator("#review")).not_to_have_attribute("data-item", but, timeout=10_000)
    return shown(page)


def until(tenant: Tenant, check: Callable[[], bool]) -> None:
    """Wait for what was sent to be stored: the screen goes on before it is."""
    for _ in range(100):
        with tenant_scope(tenant):
            if check():
                return
        time.sleep(0.1)
    raise AssertionError("It was not stored within ten seconds.")


def done_with(*desks: Desk) -> None:
    """Nothing went wrong, and nothing is under way: Review asks for the next call ahead, which claims it."""
    for one in desks:
        one.page.wait_for_load_state("networkidle")
        one.check()


def label(tenant: Tenant, call: ToolCall, user: User, word: str) -> None:
    with tenant_scope(tenant):
        record_label(item=item_of_call(call.pk), reviewer=user, label=word)


def test_two_reviewers_race_through_a_queue_and_never_get_the_same_call(
    tenant: Tenant, ada: Membership, bob: Membership, make_queue: Any, desk: Callable[..., Desk]
) -> None:
    queue, calls = make_queue(8)
    desks = [desk(ada), desk(bob)]
    at = [shown(one.open(f"/t/acme/queues/{queue.pk}/review/")) for one in desks]
    assert at[0] != at[1]
    served: list[list[str]] = [[], []]
    while any(at):
        for place, one in enumerate(desks):
            if at[place]:
                served[place].append(at[place])
                one.press("1")
                at[place] = settled(one.page, at[place])
                assert not at[place] or at[place] != at[1 - place]
    assert sorted(served[0] + served[1]) == sorted(f"call:{call.pk}" for call in calls)
    assert min(len(mine) for mine in served) >= 3
    until(tenant, lambda: Feedback.objects.count() == 8)
    for one in desks:
        one.open(f"/t/acme/queues/{queue.pk}/review/")
        expect(one.page.get_by_text("This queue is finished")).to_be_visible()
    done_with(*desks)
    with tenant_scope(tenant):
        assert Feedback.objects.count() == Assignment.objects.filter(state="labelled").count() == 8


def test_a_blind_queue_tells_nothing_until_all_answers_are_in_then_someone_decides(
    tenant: Tenant, lead: Membership, ada: Membership, bob: Membership, make_queue: Any, desk: Callable[..., Desk]
) -> None:
    queue, calls = make_queue(1, labels_needed=2, is_blind=True, reviewers=(ada.user.pk, bob.user.pk))
    with tenant_scope(tenant):
        adjudication.make(queue, actor=lead.user)
    label(tenant, calls[0], ada.user, "wrong_tool")
    theirs = desk(bob)
    page = theirs.open(f"/t/acme/queues/{queue.pk}/review/")
    assert shown(page) == f"call:{calls[0].pk}"
    expect(page.get_by_text("blind", exact=True)).to_be_visible()
    for path in (f"review/?call={calls[0].pk}", ""):
        theirs.open(f"/t/acme/queues/{queue.pk}/{path}")
        expect(page.locator(".badge.label-wrong_tool")).to_have_count(0)
    theirs.open(f"/t/acme/queues/{queue.pk}/review/")
    theirs.press("1")
    settled(page, f"call:{calls[0].pk}")
    until(tenant, lambda: Feedback.objects.filter(reviewer=bob.user).exists())
    theirs.open(f"/t/acme/calls/{calls[0].pk}/")
    expect(page.locator(".labels .badge.label-wrong_tool").first).to_be_visible()

    # They disagree: somebody sees both and takes one.
    decides = desk(lead)
    with tenant_scope(tenant):
        made = ReviewQueue.objects.get(kind="adjudication")
    page = decides.open(f"/t/acme/queues/{made.pk}/")
    decides.press("r")
    page.wait_for_url("**/review/**")
    expect(page.locator(".answers .answer")).to_have_count(2)
    decides.press("6")
    settled(page, f"call:{calls[0].pk}")
    until(tenant, lambda: Feedback.objects.filter(reviewer=lead.user).exists())
    with tenant_scope(tenant):
        assert Feedback.objects.get(reviewer=lead.user).label == "wrong_tool"
        assert QueueEntry.objects.get(queue=made).state == "done"
    done_with(theirs, decides)


def test_skip_unskip_and_hand_over_by_keys(
    tenant: Tenant, ada: Membership, bob: Membership, make_queue: Any, desk: Callable[..., Desk]
) -> None:
    queue, calls = make_queue(3, reviewers=(ada.user.pk, bob.user.pk))
    names = [f"call:{call.pk}" for call in calls]
    mine = desk(ada)
    page = mine.open(f"/t/acme/queues/{queue.pk}/review/")
    assert shown(page) == names[0]

    def skipped() -> bool:
        return Assignment.objects.filter(reviewer=ada.user, state="skipped").exists()

    mine.press("s")
    assert settled(page, names[0]) == names[1]
    until(tenant, skipped)
    mine.press("S")
    assert settled(page, names[1]) == names[0]
    mine.press("s")
    assert settled(page, names[0]) == names[1]
    until(tenant, skipped)
    page.reload()
    hand = page.locator(".act summary", has_text="Hand over")
    mine.press(hand.locator("kbd").inner_text())
    page.get_by_label("Why").last.fill("You know this tool")
    page.keyboard.press("Enter")
    settled(page, names[1])
    until(tenant, lambda: Assignment.objects.filter(reviewer=bob.user).exists())
    with tenant_scope(tenant):
        given = Assignment.objects.get(reviewer=bob.user)
        assert (given.state, given.handed_by_id, given.note) == ("handed", ada.user.pk, "You know this tool")
    theirs = desk(bob)
    page = theirs.open(f"/t/acme/queues/{queue.pk}/review/")
    assert shown(page) == names[1]
    expect(page.get_by_text("Handed over by Ada: You know this tool")).to_be_visible()
    done_with(mine, theirs)


def test_a_queue_is_made_watched_and_closed_by_keys(
    tenant: Tenant, lead: Membership, ada: Membership, bob: Membership, make_queue: Any, desk: Callable[..., Desk]
) -> None:
    _, calls = make_queue(6, name="Two opinions", labels_needed=2, ordering="useful")
    for call, word in zip(calls[:3], ("good_reply", "bad_args", "wrong_tool"), strict=True):
        label(tenant, call, ada.user, word)
        label(tenant, call, bob.user, "good_reply")
    mine = desk(lead)
    page = mine.open("/t/acme/")
    mine.press("g", "1")
    page.wait_for_url("**/queues/")
    mine.press("a")
    page.wait_for_url("**/queues/new/")
    page.get_by_label("Name").fill("Failures of a day")
    page.get_by_label("Outcome", exact=True).select_option("yes")
    expect(page.locator("#matches")).to_contain_text("0 calls match now.")
    page.keyboard.press("Escape")
    page.get_by_label("Outcome", exact=True).blur()
    mine.press("s")
    page.get_by_role("heading", name="Failures of a day").wait_for()
    mine.press("c")
    page.get_by_text("is closed: nobody is served from it").wait_for()
    mine.press("d")
    page.get_by_role("button", name="Yes, delete").click()
    page.get_by_text("1 deleted queue", exact=True).click()
    page.get_by_role("button", name="Bring back").click()
    page.get_by_text("is back, closed as it was").wait_for()
    done_with(mine)


def test_pages_are_legible_and_fit(
    tenant: Tenant,
    lead: Membership,
    ada: Membership,
    bob: Membership,
    make_queue: Any,
    desk: Callable[..., Desk],
) -> None:
    queue, calls = make_queue(9, name="Two opinions", labels_needed=2, guidelines="Look at the *units* first.")
    for call, word in zip(calls[:4], ("good_reply", "bad_args", "wrong_tool", "good_reply"), strict=True):
        label(tenant, call, ada.user, word)
        label(tenant, call, bob.user, "good_reply")
    label(tenant, calls[4], ada.user, "other")
    with tenant_scope(tenant):
        rule = {"kind": "rule", "query": "error=yes&tool=tool_1", "ordering": "useful", "sample_rate": 0.25}
        data = making.QueueData(name="Every failure of the tools of the warehouse", is_blind=True, **rule)
        making.keep_queue(data, actor=lead.user)
        entry = QueueEntry.objects.get(queue=queue, call=calls[1])
    mine = desk(lead)
    base = f"/t/acme/queues/{queue.pk}/"
    pages = ("/t/acme/queues/", "/t/acme/queues/new/?error=yes", f"{base}edit/", base, f"{base}?state=done",
             f"{base}entries/{entry.pk}/", f"{base}review/")  # fmt: skip
    for path in pages:
        assert amiss(mine.open(path)) == [], path
    done_with(mine)
