"""Who runs a turn: claims by compare-and-set with a lease and a fencing token.

A turn belongs to whoever holds the token of its newest claim; every write checks it. All times are the database's own,
so that clocks of different machines do not matter. Nothing here waits for a locked row: it is skipped.
"""

import os
import socket
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from django.conf import settings
from django.db import OperationalError, connection, connections

from quality.ingest.jsontext import dump
from quality.turns.claim import Claim
from quality.turns.endings import WORKER_LOST, end_lost_turn
from quality.turns.events import insert
from quality.turns.faults import may_strike
from tenants.scope import tenant_scope

MAX_ATTEMPTS = 3
HERE = f"{socket.gethostname()}:{os.getpid()}"

_LOCK = 1_953_853_044  # of claims, beside the tenant's id
_LOCK_WAIT = "1s"  # a process that was stopped with the lock in hand must not stop the others
_FREE = "(r.state = 'queued' OR (r.state = 'running' AND r.lease_until < now()))"


def tenants_with_work() -> list[int]:
    """Tenants with turns that could be claimed, the one that waits longest first. Reads as the janitor."""
    with connections["janitor"].cursor() as cursor:
        cursor.execute(
            f"SELECT r.tenant_id FROM agent_turn_runs r WHERE {_FREE} GROUP BY r.tenant_id ORDER BY min(r.queued_at)"  # noqa: S608
        )
        return [tenant_id for (tenant_id,) in cursor.fetchall()]


def overdue(older_than_s: float) -> list[tuple[int, int]]:
    """(tenant, turn) of what nobody took up in time: for hints that were lost. One turn a tenant wakes a worker."""
    with connections["janitor"].cursor() as cursor:
        cursor.execute(
            "SELECT DISTINCT ON (r.tenant_id) r.tenant_id, r.turn_id FROM agent_turn_runs r "
            "WHERE (r.state = 'queued' AND r.queued_at < now() - make_interval(secs => %s)) "
            "OR (r.state = 'running' AND r.lease_until < now()) ORDER BY r.tenant_id, r.queued_at",
            [older_than_s],
        )
        return [(tenant_id, turn_id) for tenant_id, turn_id in cursor.fetchall()]


_STOPPED = """
SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity a
WHERE a.datname = current_database() AND a.usename = current_user AND a.pid <> pg_backend_pid()
  AND a.state <> 'idle' AND a.wait_event = 'ClientRead'
  AND a.state_change < clock_timestamp() - make_interval(secs => %s)
  AND EXISTS (SELECT FROM pg_locks l WHERE l.pid = a.pid AND l.relation = 'agent_turn_runs'::regclass
              AND l.mode IN ('RowShareLock', 'RowExclusiveLock') AND l.granted)
"""


def end_stopped_sessions() -> int:
    """End sessions that hold runs and have heard nothing from their process for as long as a lease; how many.

    What a process locked stays locked while the process is stopped. `idle_in_transaction_session_timeout` ends such a
    session only between two commands: one that was left in the middle of several sent together waits for ever.
    """
    with connection.cursor() as cursor:
        cursor.execute(_STOPPED, [settings.TURN_LEASE_S])
        return len(cursor.fetchall())


class TenantBusy(Exception):
    """Another process is claiming turns of this tenant, and does not come to an end."""


_CLAIM = f"""
WITH room AS (
    SELECT %(cap)s - count(*) AS n FROM agent_turn_runs
    WHERE tenant_id = %(tenant)s AND state = 'running' AND lease_until >= now()
), chosen AS (
    SELECT r.id FROM agent_turn_runs r
    WHERE r.tenant_id = %(tenant)s AND {_FREE} AND r.attempt < %(attempts)s
      AND NOT EXISTS (
        SELECT FROM agent_turn_runs e
        WHERE e.tenant_id = r.tenant_id AND e.conversation_id = r.conversation_id AND r.conversation_id <> ''
          AND e.state IN ('queued', 'running') AND e.id < r.id)
    ORDER BY r.queued_at, r.id LIMIT (SELECT greatest(0, least(n, %(limit)s)) FROM room)
    FOR UPDATE SKIP LOCKED
)
UPDATE agent_turn_runs r
SET state = 'running', attempt = r.attempt + 1, lease_token = gen_random_uuid(), worker = %(worker)s,
    last_seq = r.last_seq + 1, lease_until = clock_timestamp() + make_interval(secs => %(lease)s)
FROM chosen WHERE r.tenant_id = %(tenant)s AND r.id = chosen.id
RETURNING r.turn_id, r.lease_token, r.attempt, r.last_seq
"""  # noqa: S608


def claim_turns(tenant_id: int, limit: int) -> list[Claim]:
    """Claim up to `limit` turns of a tenant, oldest first, within the tenant's cap; turns that are lost for the third
    time are ended instead. A turn waits for the earlier ones of its conversation. Raises TenantBusy."""
    try:
        return _claim_turns(tenant_id, limit)
    except OperationalError as error:
        if isinstance(error.__cause__, psycopg.errors.LockNotAvailable):
            raise TenantBusy from error
        raise


def _claim_turns(tenant_id: int, limit: int) -> list[Claim]:
    with tenant_scope(tenant_id), connection.cursor() as cursor:
        # One claim of a tenant at a time: else two processes would each see room for the last turn below the cap.
        cursor.execute(
            "SELECT set_config('lock_timeout', %s, true), pg_advisory_xact_lock(%s, %s)",
            [_LOCK_WAIT, _LOCK, tenant_id % 2**31],
        )
        _give_up(cursor, tenant_id)
        cursor.execute(
            _CLAIM,
            {
                "tenant": tenant_id,
                "cap": settings.TURN_TENANT_SLOTS,
                "attempts": MAX_ATTEMPTS,
                "limit": limit,
                "worker": HERE,
                "lease": settings.TURN_LEASE_S,
            },
        )
        claimed = cursor.fetchall()
        if claimed:
            may_strike("claiming")
        claims = [Claim(tenant_id, turn_id, token, attempt) for turn_id, token, attempt, _ in claimed]
        if claims:
            _tell(tenant_id, claimed)
            cursor.execute(
                "UPDATE agent_turns SET state = 'running' WHERE tenant_id = %s AND id = ANY(%s) AND state <> 'running'",
                [tenant_id, [claim.turn_id for claim in claims]],
            )
    return claims


def _tell(tenant_id: int, claimed: Sequence[tuple[int, uuid.UUID, int, int]]) -> None:
    """Who watches hears of each claim: what was shown of a reply that never became whole is void with it."""
    insert(
        tenant_id,
        [
            (turn_id, seq, dump({"type": "turn_state", "state": "running", "attempt": attempt}))
            for turn_id, _, attempt, seq in claimed
        ],
    )


def _give_up(cursor: Any, tenant_id: int) -> None:
    cursor.execute(
        "SELECT turn_id FROM agent_turn_runs r WHERE r.tenant_id = %s AND r.state = 'running' "
        "AND r.lease_until < now() AND r.attempt >= %s FOR UPDATE SKIP LOCKED",
        [tenant_id, MAX_ATTEMPTS],
    )
    for (turn_id,) in cursor.fetchall():
        end_lost_turn(turn_id, f"{WORKER_LOST} {MAX_ATTEMPTS} times.")


@dataclass(frozen=True, slots=True)
class Renewed:
    """Of the turns asked for: those that are still ours, and those of them that somebody wants to end."""

    kept: frozenset[uuid.UUID]
    cancelled: frozenset[uuid.UUID]


def renew(tenant_id: int, tokens: Sequence[uuid.UUID]) -> Renewed:
    """Renew these leases of one tenant."""
    with tenant_scope(tenant_id), connection.cursor() as cursor:
        # A row that is locked is being written by its own runner, which renews it too.
        cursor.execute(
            "UPDATE agent_turn_runs SET lease_until = clock_timestamp() + make_interval(secs => %s) "
            "WHERE tenant_id = %s AND id IN (SELECT id FROM agent_turn_runs WHERE tenant_id = %s "
            "AND state = 'running' AND lease_token = ANY(%s) FOR UPDATE SKIP LOCKED)",
            [settings.TURN_LEASE_S, tenant_id, tenant_id, list(tokens)],
        )
        cursor.execute(
            "SELECT lease_token, cancel_requested_at IS NOT NULL FROM agent_turn_runs "
            "WHERE tenant_id = %s AND state = 'running' AND lease_token = ANY(%s)",
            [tenant_id, list(tokens)],
        )
        found = cursor.fetchall()
    return Renewed(
        frozenset(token for token, _ in found), frozenset(token for token, is_cancelled in found if is_cancelled)
    )


def release(claim: Claim) -> None:
    """Give a turn back unfinished, as a worker does that is told to stop: the attempt does not count."""
    with tenant_scope(claim.tenant_id), connection.cursor() as cursor:
        cursor.execute(
            "UPDATE agent_turn_runs SET state = 'queued', attempt = greatest(0, attempt - 1), lease_token = NULL, "
            "lease_until = NULL, queued_at = now() WHERE tenant_id = %s AND turn_id = %s AND lease_token = %s "
            "AND state = 'running'",
            [claim.tenant_id, claim.turn_id, claim.token],
        )
        if cursor.rowcount:
            cursor.execute(
                "UPDATE agent_turns SET state = 'queued' WHERE tenant_id = %s AND id = %s",
                [claim.tenant_id, claim.turn_id],
            )
