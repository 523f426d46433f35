"""Items that wait in a blind queue: whose labels are not all in yet. Who reviews there must not see others' until then.

The rule, once as Django's conditions and once in SQL, for all that reads many rows. All functions need an open tenant
scope.
"""

from typing import Final

from django.db.models import Exists, OuterRef, Q, QuerySet

from quality.models import QueueEntry, ReviewQueue
from quality.review.queues.people import LABELLING_ROLES, queues_of
from tenants.models import Membership, User


def viewer_of(user: User) -> int | None:
    """The user's id where he reviews in a blind queue, by which the conditions below hide labels; None: he sees all.
    One query."""
    may = Membership.objects.filter(user=user, role__in=LABELLING_ROLES)
    return user.pk if queues_of(user).filter(Exists(may), is_blind=True).exists() else None


def waits_blind(viewer: int | None = None) -> Q:
    """The condition on a row that hangs on an item that it waits in a blind queue; with a `viewer`, in one where he is
    a reviewer."""
    return on_item(entries(viewer))


def entries(viewer: int | None = None) -> QuerySet[QueueEntry]:
    """The entries of blind queues that still wait for labels; with a `viewer`, of those where he is a reviewer."""
    blind = Q(is_blind=True, state=QueueEntry.State.OPEN, queue__deleted_at=None)
    blind &= ~Q(queue__state=ReviewQueue.State.CLOSED)
    if viewer is not None:
        blind &= Q(queue__for_everyone=True) | Q(queue__reviewers__reviewer=viewer)
    return QueueEntry.objects.filter(blind).order_by()


def on_item(found: QuerySet[QueueEntry]) -> Q:
    """The condition on a row that hangs on an item that one of these entries is of that item."""
    alone = found.filter(turn_id=OuterRef("turn_id"), cycle=OuterRef("cycle"), call_id=None)
    return Q(Exists(found.filter(call_id=OuterRef("call_id")))) | (Q(call_id=None) & Q(Exists(alone)))


def hidden_row(alias: str, reviewer: str = "") -> str:
    """SQL, of a row that hangs on an item: must `%(viewer)s` (null: nobody in particular) not see it? What the person
    in the column `reviewer` said is told to himself."""
    own = f"AND {alias}.{reviewer} <> %(viewer)s " if reviewer else ""
    return f"(%(viewer)s::bigint IS NOT NULL {own}AND EXISTS ({_ENTRY.replace('<row>', alias)}))"


_ENTRY: Final = """
SELECT FROM review_queue_entries be JOIN review_queues bq ON bq.tenant_id = be.tenant_id AND bq.id = be.queue_id
WHERE be.tenant_id = <row>.tenant_id AND be.turn_id = <row>.turn_id AND be.call_id IS NOT DISTINCT FROM <row>.call_id
    AND (be.call_id IS NOT NULL OR be.cycle = <row>.cycle) AND be.is_blind AND be.state = 'open'
    AND bq.state <> 'closed' AND bq.deleted_at IS NULL
    AND (bq.for_everyone OR EXISTS (SELECT FROM review_queue_reviewers br
        WHERE br.tenant_id = bq.tenant_id AND br.queue_id = bq.id AND br.reviewer_id = %(viewer)s))
"""
