"""`manage.py demo`: makes the demo tenants once, through the same store and labelling as everybody else."""

import datetime as dt
import io
import json
import time
from collections import Counter

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from quality.demo import seed
from quality.demo.generator import CHANGED_DAYS_AGO
from quality.improve.cases import judge_recorded
from quality.improve.rates import rates_of
from quality.models import (
    Case,
    CoachRun,
    Feedback,
    FeedbackEvent,
    Import,
    Proposal,
    Review,
    ReviewQueue,
    SavedView,
    ToolCall,
    Toolset,
    Turn,
)
from quality.review import reviewers
from quality.review.items import item_of_call, item_of_turn
from quality.review.queues import making, progress
from quality.turns.resolver import Conversation, resolve_tools
from tenants import access, booking
from tenants.catalogue import catalogue
from tenants.keys import parse_keks
from tenants.models import Membership, Style, Tenant, User
from tenants.scope import tenant_scope

pytestmark = pytest.mark.usefixtures("db")

MODELS = (
    Turn, ToolCall, Toolset, Review, Feedback, FeedbackEvent, Import, Membership, ReviewQueue, SavedView, CoachRun
)  # fmt: skip


def demo(*arguments: str) -> str:
    out = io.StringIO()
    call_command("demo", *arguments, stdout=out)
    return out.getvalue()


def tenant(slug: str = "demo") -> Tenant:
    found = access.tenant_by_slug(slug)
    assert found
    return found


def counts(slug: str) -> dict[str, int]:
    with tenant_scope(tenant(slug)):
        return {model.__name__: model.objects.count() for model in MODELS}


def test_a_first_run_makes_all_and_a_second_one_nothing() -> None:
    began = time.monotonic()
    told = demo()
    first_s = time.monotonic() - began
    made = {plan.slug: counts(plan.slug) for plan in seed.PLANS}
    began = time.monotonic()
    again = demo()
    second_s = time.monotonic() - began
    assert {plan.slug: counts(plan.slug) for plan in seed.PLANS} == made
    assert "demo@example.com (admin)" in told
    assert again.count("there already") == len(seed.PLANS)
    assert made["demo"]["Turn"] > 380
    assert made["demo"]["ToolCall"] > 380
    assert made["demo"]["Toolset"] > 6
    assert second_s < first_s / 4


def test_what_is_stored_is_what_reviewers_need() -> None:
    demo()
    now = timezone.now()
    with tenant_scope(tenant()):
        for model in (Turn, ToolCall):
            oldest, newest = model.objects.order_by("started_at").first(), model.objects.order_by("started_at").last()
            assert oldest.started_at > now - dt.timedelta(days=31)
            assert newest.started_at < now
        for args, result in ToolCall.objects.values_list("args", "result"):
            json.loads(args)
            json.loads(result or "null")
        for messages, system in Turn.objects.values_list("messages", "system"):
            json.loads(messages)
            json.loads(system or "null")
        assert not ToolCall.objects.filter(toolset=None).exists()
        assert set(ToolCall.objects.values_list("state", flat=True)) == {"result", "error", "unknown"}


def test_what_became_of_labels_is_there_to_be_seen() -> None:
    demo()
    with tenant_scope(tenant()):
        states = Counter(Proposal.objects.values_list("state", "resolution_kind"))
        assert states == {("applied", "tool_schema_patch"): 1, ("applied", "regression_case"): 1, ("pending", ""): 1}
        mended = rates_of(Proposal.objects.get(resolution_kind="tool_schema_patch"))
        assert mended.after is not None
        assert mended.before.num_faulty > 0
        case = Case.objects.get()
        assert case.ref == "REG-1"
        assert not judge_recorded(case).warnings
        assert set(Style.objects.values_list("style_id", "version")) == {(name, 2) for name in CHANGED_DAYS_AGO}
    demo("--reset")
    with tenant_scope(tenant()):
        assert Case.objects.get().ref == "REG-1"


def test_labels_came_as_events_and_enough_is_left_to_do() -> None:
    demo()
    with tenant_scope(tenant()):
        events = FeedbackEvent.objects.all()
        assert events.count() == Feedback.objects.count() > 120
        assert set(events.values_list("reviewer__email", flat=True)) == {seed.FIRST[0], seed.SECOND[0]}
        assert len(set(events.values_list("label", flat=True))) == 5
        assert events.exclude(note="").exists()
        corrected = Feedback.objects.exclude(correction=None)
        assert set(corrected.values_list("label", flat=True)) == {"wrong_tool", "missing_tool", "bad_args"}
        assert corrected.count() > 20
        assert all(feedback.faults for feedback in corrected)
        assert set(Feedback.objects.values_list("guideline_version", flat=True)) == {1, 2}
        days = {at.date() for at in events.values_list("created_at", flat=True)}
        assert len(days) > 14  # as they were given, not as they were stored
        assert max(events.values_list("created_at", flat=True)) < timezone.now()
        for feedback in Feedback.objects.all():
            item = item_of_call(feedback.call_id) if feedback.call_id else item_of_turn(feedback.turn_id)
            assert Review.objects.get(**item.key).version > 0
        labelled = Review.objects.exclude(call=None).values("call")
        assert ToolCall.objects.exclude(pk__in=labelled).count() >= 150
        two = Counter(Feedback.objects.values_list("turn_id", "cycle", "call_id"))
        assert max(two.values()) == 2


def test_two_people_share_the_work_and_it_shows() -> None:
    demo()
    now = timezone.now()
    with tenant_scope(tenant()):
        admin = User.objects.get(email=seed.ADMIN[0])
        shown = {one.name: progress.of_queue(one) for one in making.queues()}
        assert set(shown) == {"Failures", "Second opinion", "Second opinion: disagreements"}
        assert all(one.open for one in shown.values())
        assert shown["Second opinion"].agreed
        assert shown["Second opinion"].disagreed
        found = reviewers.crew(now - dt.timedelta(days=31), viewer=admin)
        at_work = [one for one in found.works if one.labels]
        assert len(at_work) == 2
        for one in at_work:
            assert one.pace.median_s is not None
            assert 5 < one.pace.median_s < 120
        assert SavedView.objects.filter(is_shared=True).count() == 2
        assert CoachRun.objects.filter(state="done").exists()


def test_people_sign_in_without_a_password_and_differ_in_role() -> None:
    demo()
    people = User.objects.filter(email__endswith="@example.com")
    assert {user.email for user in people} == {email for plan in seed.PLANS for email, _, _ in plan.people}
    assert not any(user.has_usable_password() for user in people)
    with tenant_scope(tenant()):
        assert set(Membership.objects.values_list("role", flat=True)) == {"viewer", "operator", "admin"}
    roles = {
        membership.tenant.slug: membership.role for membership in access.memberships_of(people.get(email=seed.ADMIN[0]))
    }
    assert roles == {"demo": "admin", "lampwright": "operator"}


def test_reset_makes_a_fresh_month_and_keeps_the_people() -> None:
    demo()
    before = counts("demo")
    with tenant_scope(tenant()):
        newest = Turn.objects.latest("pk").pk
        Membership.objects.exclude(role="admin").delete()
    demo("--reset")
    after = counts("demo")
    assert after | {"Membership": 0} == before | {"Membership": 0}
    assert after["Membership"] == 1
    with tenant_scope(tenant()):
        assert not Turn.objects.filter(pk__lte=newest).exists()


def test_turns_of_the_demo_have_tools_that_need_nothing_else() -> None:
    demo()
    with tenant_scope(tenant()):
        offered = {entry.name for entry in catalogue() if entry.is_enabled}
        assert booking.url(run="a test") == "https://book.example.com/demo"
    assert offered >= {"offer_booking_link", "compute_exchange_quote"}
    with tenant_scope(tenant()):
        box = resolve_tools(tenant(), Conversation())
    assert [tool.name for tool in box.tools] == ["offer_booking_link"]


def test_without_keys_the_demo_comes_without_its_link(settings) -> None:
    settings.APP_KEKS = parse_keks("")
    demo()
    with tenant_scope(tenant()):
        assert booking.secret() is None


def test_a_tenant_of_somebody_elses_is_never_touched() -> None:
    mine = Tenant.objects.create_tenant(slug="demo", name="Demolition Desk")
    with tenant_scope(mine):
        Turn.objects.create(source="engine", external_id="mine", content_sha256=b"1" * 32)
    for arguments in ((), ("--reset",)):
        with pytest.raises(CommandError, match="not a demo"):
            demo(*arguments)
    with tenant_scope(mine):
        assert Turn.objects.count() == 1
        assert not Membership.objects.exists()


def test_a_run_that_breaks_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(seed, "record_label", broken)
        with pytest.raises(OSError, match="disk full"):
            demo()
    assert access.tenant_by_slug("demo") is None
    assert not User.objects.exists()
    assert "turns" in demo()
