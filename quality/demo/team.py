"""How the demo's people share the work: queues with what they hold already, views, and the coach's first advice."""

from collections.abc import Sequence

from django.db.models import Count

from quality.calls import CallFilter
from quality.demo.generator import CHANGED_DAYS_AGO
from quality.improve.coach import runs as coach
from quality.models import Feedback, ReviewQueue, ViewPage
from quality.review import views
from quality.review.queues import adding, adjudication, making
from tenants.models import Membership, User

ANSWERED, FRESH = 50, 25  # items of the queue for two: with answers, the most first, and with none
VIEWS = (("Failures", "error=yes"), ("Noticed by rules, unlabelled", "hint=any&label=none"))


def organise(admin: User, reviewers: Sequence[User]) -> None:
    """Queues, views and a run of the coach, in the open scope of a demo that has its labels."""
    _failures(admin)
    _second_opinion(admin, reviewers)
    by = Membership.objects.select_related("user", "tenant").get(user=admin)
    for name, query in VIEWS:
        views.save(page=ViewPage.CALLS, name=name, query=query, by=by, is_shared=True)
    corrected = Feedback.objects.exclude(correction=None).filter(style_id__in=CHANGED_DAYS_AGO)
    if newest := corrected.order_by("-pk").first():
        coach.start(style_id=newest.style_id, by=admin, model_label=coach.RULES)


def _failures(admin: User) -> None:
    """What failed, as it comes in."""
    said = making.QueueData(
        name="Failures",
        kind=ReviewQueue.Kind.RULE,
        query="error=yes",
        ordering=ReviewQueue.Order.USEFUL,
        guidelines="Was the call wrong, or the tool down? Only the first is the agent's fault.",
    )
    adding.add_matching(making.keep_queue(said, actor=admin), CallFilter(error="yes"), admin)


def _second_opinion(admin: User, reviewers: Sequence[User]) -> None:
    """Two answers to each item, where neither reviewer sees the other's; what they disagree on comes to the admin."""
    named = tuple(reviewer.pk for reviewer in reviewers)
    said = making.QueueData(name="Second opinion", labels_needed=2, is_blind=True, reviewers=named)
    queue = making.keep_queue(said, actor=admin)
    answered = Feedback.objects.exclude(call=None).values("call").annotate(answers=Count("pk"))
    most = answered.order_by("-answers", "-call")[:ANSWERED]
    items, _ = adding.items_of([one["call"] for one in most])
    adding.add_items(queue, items, actor=admin)
    adding.add_matching(queue, CallFilter(labels=("none",)), admin, FRESH)
    adjudication.make(queue, actor=admin)
