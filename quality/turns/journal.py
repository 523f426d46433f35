"""All writes of a process's running turns: fenced, and many in one transaction.

A turn awaits each write, and writes of different turns that come at the same moment share a transaction: one commit for
all of them instead of one for each. A write holds only while the turn's newest claim is ours; it renews the lease, adds
the events and rings for those who watch.
"""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from uuid import UUID

from django.conf import settings
from django.db import DatabaseError, InterfaceError, OperationalError, connection

from quality.privacy.ended import mask_ended
from quality.review import hinting
from quality.turns.claim import Claim
from quality.turns.events import insert
from quality.turns.faults import may_strike
from quality.turns.rows import FINISH, ORDER, SAVE_TURN, Statement
from tenants.scope import tenant_scope

logger = logging.getLogger(__name__)

NUM_THREADS = 2
MAX_BATCH = 64
RETRY_S = 0.25

_FENCE = """
UPDATE agent_turn_runs r
SET last_seq = r.last_seq + v.n, lease_until = clock_timestamp() + make_interval(secs => %s)
FROM unnest(%s::bigint[], %s::uuid[], %s::int[]) AS v (turn_id, token, n)
WHERE r.tenant_id = %s AND r.turn_id = v.turn_id AND r.lease_token = v.token AND r.state = 'running'
RETURNING r.lease_token, r.last_seq
"""


class LeaseLost(Exception):
    """Another worker has this turn now, or it was ended: write nothing more of it."""


@dataclass(slots=True)
class Entry:
    """Writes that belong together, with the events that tell of them (JSON text, oldest first)."""

    claim: Claim
    statements: Sequence[Statement] = ()
    events: Sequence[str] = ()
    done: "asyncio.Future[None] | None" = field(default=None, repr=False)


class Journal:
    """Used from one event loop; `close()` when no turn runs any more."""

    def __init__(self) -> None:
        self._waiting: dict[int, list[Entry]] = defaultdict(list)  # by tenant, in the order in which they came
        self._busy: set[int] = set()
        self._threads = ThreadPoolExecutor(NUM_THREADS, "journal")
        self._loop: asyncio.AbstractEventLoop | None = None

    async def write(self, entry: Entry) -> None:
        """Returns when the entry is committed; raises LeaseLost."""
        self._loop = asyncio.get_running_loop()
        entry.done = self._loop.create_future()
        self._waiting[entry.claim.tenant_id].append(entry)
        self._start(entry.claim.tenant_id)
        await asyncio.shield(entry.done)

    def close(self) -> None:
        self._threads.shutdown(wait=True)

    def _start(self, tenant_id: int) -> None:
        """One batch of a tenant at a time: so the entries of a turn keep their order."""
        if tenant_id in self._busy or not self._waiting[tenant_id]:
            return
        assert self._loop is not None
        waiting = self._waiting[tenant_id]
        batch, self._waiting[tenant_id] = waiting[:MAX_BATCH], waiting[MAX_BATCH:]
        self._busy.add(tenant_id)
        commit = self._loop.run_in_executor(self._threads, _committed, tenant_id, batch)
        commit.add_done_callback(lambda outcome: self._finish(tenant_id, batch, outcome))

    def _finish(self, tenant_id: int, batch: list[Entry], outcome: "asyncio.Future[set[UUID]]") -> None:
        self._busy.discard(tenant_id)
        self._start(tenant_id)
        error = outcome.exception()
        for entry in batch:
            assert entry.done is not None
            if entry.done.cancelled():
                continue
            if error is not None:
                entry.done.set_exception(error)
            elif entry.claim.token in outcome.result():
                entry.done.set_result(None)
            else:
                entry.done.set_exception(LeaseLost())
            entry.done.exception()  # a turn that was cancelled asks no more


def _committed(tenant_id: int, batch: Sequence[Entry]) -> set[UUID]:
    try:
        return _commit(tenant_id, batch)
    finally:
        connection.close()  # back to the pool


def _commit(tenant_id: int, batch: Sequence[Entry]) -> set[UUID]:
    """Write a batch; the tokens of the claims that hold. While the database is away it is tried again as long as a
    lease lasts: then the turns are another's."""
    deadline = time.monotonic() + settings.TURN_LEASE_S
    while True:
        try:
            return _write(tenant_id, batch)
        except (OperationalError, InterfaceError) as error:
            connection.close()
            if time.monotonic() > deadline:
                raise LeaseLost from error
            logger.warning("The database did not take what turns wrote (%s); trying again", str(error).strip())
            time.sleep(RETRY_S)
        except DatabaseError:
            connection.close()
            if len(batch) == 1:
                raise
            return _write_singly(tenant_id, batch)


def _write_singly(tenant_id: int, batch: Sequence[Entry]) -> set[UUID]:
    """A batch of which one entry is at fault: the others must not suffer."""
    kept: set[UUID] = set()
    for entry in batch:
        try:
            kept |= _write(tenant_id, [entry])
        except DatabaseError:
            connection.close()
            logger.exception("turn %s: what it recorded was refused", entry.claim.turn_id)
    return kept


def _write(tenant_id: int, batch: Sequence[Entry]) -> set[UUID]:
    by_claim: dict[Claim, list[str]] = defaultdict(list)
    for entry in batch:
        by_claim[entry.claim] += entry.events
    with tenant_scope(tenant_id), connection.cursor() as cursor:
        cursor.execute(
            _FENCE,
            [
                settings.TURN_LEASE_S,
                [claim.turn_id for claim in by_claim],
                [claim.token for claim in by_claim],
                [len(events) for events in by_claim.values()],
                tenant_id,
            ],
        )
        last_seqs: dict[UUID, int] = dict(cursor.fetchall())
        may_strike("writing")
        held = [entry for entry in batch if entry.claim.token in last_seqs]
        for sql in ORDER:
            rows = [row for entry in held for statement, row in entry.statements if statement is sql]
            if rows:
                cursor.executemany(sql, rows)
        insert(
            tenant_id,
            [
                (claim.turn_id, seq, text)
                for claim, events in by_claim.items()
                if claim.token in last_seqs
                for seq, text in enumerate(events, last_seqs[claim.token] - len(events) + 1)
            ],
        )
        mask_ended([row["turn_id"] for entry in held for sql, row in entry.statements if sql is FINISH])
        if any(sql is SAVE_TURN for entry in held for sql, _ in entry.statements):
            hinting.wake(tenant_id)
    return set(last_seqs)
