"""How a message that is a row is tried until it has arrived: claims, pauses, giving up.

For any model with `message_id`, `state` (pending, sent, failed), `attempt`, `next_at`, `status`, `error` and `sent_at`.
All but `due_by_turns` need an open tenant scope.
"""

import datetime as dt
from typing import Any

from django.db import connections
from django.db.models import Model, QuerySet
from django.utils import timezone

from quality.webhooks.sending import Answer

PENDING, SENT, FAILED = "pending", "sent", "failed"

# Between one try and the next: eight tries, over nearly a day.
PAUSES = [dt.timedelta(minutes=minutes) for minutes in (1, 5, 15, 60, 180, 360, 720)]
MAX_TRIES = len(PAUSES) + 1
LEASE = dt.timedelta(minutes=5)  # longer than any try takes; then it is another worker's turn


class OnItsWay(Exception):
    """The message is being sent already."""


_DUE = """
SELECT waiting.tenant_id, waiting.id FROM tenants t CROSS JOIN LATERAL (
    SELECT tenant_id, id, next_at, row_number() OVER (ORDER BY next_at) AS place FROM {table}
    WHERE tenant_id = t.id AND state = 'pending' AND next_at <= %(now)s ORDER BY next_at LIMIT %(limit)s
) waiting ORDER BY waiting.place, waiting.next_at LIMIT %(limit)s
"""


def due_by_turns(model: type[Model], now: dt.datetime, limit: int) -> list[tuple[int, int]]:
    """(tenant, id) of what is to be tried now: of each tenant its oldest, then of each its second oldest, and so on, so
    that nobody waits for another tenant's backlog. Asks as the janitor."""
    with connections["janitor"].cursor() as cursor:
        cursor.execute(_DUE.format(table=model._meta.db_table), {"now": now, "limit": limit})
        return list(cursor.fetchall())


def due(rows: QuerySet[Any], pk: int, now: dt.datetime) -> Any | None:
    """The row, locked, if it is to be tried now and no other worker holds it."""
    locked = rows.select_for_update(skip_locked=True, of=("self",))
    return locked.filter(pk=pk, state=PENDING, next_at__lte=now).first()


def begin(row: Any, now: dt.datetime) -> None:
    """Count the try, and keep others from it for as long as it can take."""
    row.attempt += 1
    row.next_at = now + LEASE
    row.save(update_fields=["attempt", "next_at"])


def keep(row: Any, answer: Answer, now: dt.datetime) -> bool:
    """What came of a try, unless another worker has taken the message up since. True if the message came to its end."""
    ours = type(row).objects.filter(pk=row.pk, message_id=row.message_id, state=PENDING, attempt=row.attempt)
    said = {"status": answer.status, "error": answer.error}
    if answer.was_taken:
        return bool(ours.update(state=SENT, sent_at=timezone.now(), **said))
    if answer.is_final or row.attempt >= MAX_TRIES:
        return bool(ours.update(state=FAILED, **said))
    ours.update(next_at=now + PAUSES[row.attempt - 1], **said)
    return False


def give_up(row: Any, answer: Answer) -> Answer:
    """It is not sent: `answer` says why."""
    row.state, row.status, row.error = FAILED, answer.status, answer.error
    row.save(update_fields=["state", "attempt", "status", "error"])
    return answer


def again(row: Any) -> None:
    """Once more from the first try, under the same id. The caller holds the row. Raises OnItsWay."""
    if row.state == PENDING:
        raise OnItsWay("It is on its way already. Wait for what comes of it.")
    afresh = _afresh()
    for name, value in afresh.items():
        setattr(row, name, value)
    row.save(update_fields=list(afresh))


def all_again(rows: QuerySet[Any]) -> int:
    """Each of these that is on its way no more, once more from the first try; how many."""
    return rows.exclude(state=PENDING).update(**_afresh())


def _afresh() -> dict[str, Any]:
    return {"state": PENDING, "attempt": 0, "next_at": timezone.now(), "status": None, "error": ""}
