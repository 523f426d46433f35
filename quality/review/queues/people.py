"""Who may label in a queue: members with the role for it, everyone or those the queue names."""

from collections.abc import Iterable

from django.db.models import Exists, OuterRef, Q, QuerySet

from quality.models import QueueReviewer, ReviewQueue
from tenants.models import Membership, Role, User

LABELLING_ROLES = [role for role in Role if role.includes(Role.OPERATOR)]


def may_label(queue: ReviewQueue, user: User) -> bool:
    """Is this a member who may label, and one of the queue's reviewers?"""
    if not Membership.objects.filter(user=user, role__in=LABELLING_ROLES).exists():
        return False
    return queue.for_everyone or QueueReviewer.objects.filter(queue=queue, reviewer=user).exists()


def reviewers_of(queue: ReviewQueue) -> list[User]:
    """Those who may label in the queue, by name."""
    may = Membership.objects.filter(role__in=LABELLING_ROLES)
    users = User.objects.filter(pk__in=may.values("user"))
    if not queue.for_everyone:
        users = users.filter(pk__in=QueueReviewer.objects.filter(queue=queue).values("reviewer"))
    return list(users.order_by("name", "email"))


def labelling_members() -> QuerySet[User]:
    """Members who may be named as reviewers, by name."""
    may = Membership.objects.filter(role__in=LABELLING_ROLES)
    return User.objects.filter(pk__in=may.values("user")).order_by("name", "email")


def found_members(words: Iterable[str]) -> tuple[list[User], list[str]]:
    """The members that e-mail addresses or names mean, and what means nobody, or more than one."""
    members = list(labelling_members())
    found: dict[int, User] = {}
    unknown: list[str] = []
    for word in filter(None, (one.strip() for one in words)):
        same = [user for user in members if word.lower() in (user.email.lower(), user.name.lower())]
        if len(same) == 1:
            found[same[0].pk] = same[0]
        else:
            unknown.append(word)
    return list(found.values()), unknown


def queues_of(user: User) -> QuerySet[ReviewQueue]:
    """The queues that are not closed in which this user is a reviewer, by name. The role is the caller's to check."""
    named = QueueReviewer.objects.filter(queue=OuterRef("pk"), reviewer=user)
    found: QuerySet[ReviewQueue] = ReviewQueue.objects.filter(
        Q(for_everyone=True) | Exists(named), deleted_at__isnull=True
    )
    return found.exclude(state=ReviewQueue.State.CLOSED).order_by("name")
