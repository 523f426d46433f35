"""The thread that records, after the reply. Traffic never waits for it, and goes on without it.

What cannot be recorded is a gap: counted here, written once the database takes it, and told on the page of models.
While the database is away exchanges wait, up to PATIENCE_S and QUEUE_BYTES; then they are gaps.
"""

import datetime as dt
import logging
import threading
import time
from collections import deque
from contextvars import Context
from dataclasses import dataclass
from functools import cache

from django.db import Error as DatabaseFault
from django.db import IntegrityError, InterfaceError, OperationalError, connection, transaction
from django.utils import timezone

from quality.gateway import days
from quality.gateway.days import Place, Tally
from quality.gateway.exchange import Exchange
from quality.gateway.record import NotYet, Unrecorded, record
from quality.models import GatewayHistory
from tenants.scope import tenant_scope

logger = logging.getLogger(__name__)

QUEUE_BYTES = 64 * 1024 * 1024
PATIENCE_S = 60.0
GATHER_S = 0.05  # exchanges that end within so little go in one transaction
LATER_S = 1.5  # until a history that nobody knows is looked up once more
RETRY_S = 2.0
BATCH = 50
IDLE_S = 5.0  # until the thread ends that has nothing to do
AWAY = (OperationalError, InterfaceError)  # of the database: worth another try
GLANCE_S = 0.2  # between two looks whether the process ends
REMEMBERED_DAYS = 30
FORGET_EVERY_S = 3600.0


@dataclass(slots=True)
class _Waiting:
    exchange: Exchange
    since: float
    due: float
    may_wait: bool = True


class Recorder:
    """Takes exchanges from any thread and records them in one of its own. `patience_s` is how long one waits for a
    database that is away."""

    def __init__(self, *, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._news = threading.Condition(self._lock)
        self._queue: deque[_Waiting] = deque()
        self._size = 0
        self._tallies: dict[Place, Tally] = {}
        self._has_thread = self._is_busy = self._has_failed = False
        self._forgot_at: dict[int, float] = {}

    def take(self, exchange: Exchange) -> None:
        now = time.monotonic()
        with self._lock:
            self._count(exchange, days.tally_of(exchange))
            if self._size + exchange.size > QUEUE_BYTES:
                self._gap(exchange, "The recorder does not keep up: too much waits to be recorded.")
            else:
                self._size += exchange.size
                self._queue.append(_Waiting(exchange, now, now))
            if self._has_thread:
                self._news.notify()
            else:
                self._has_thread = True
                # Not a daemon: a process that ends waits for it.
                threading.Thread(target=Context().run, args=(self._work,), name="gateway-recorder").start()

    @property
    def num_waiting(self) -> int:
        """Exchanges that are not recorded yet."""
        with self._lock:
            return len(self._queue)

    def is_idle(self) -> bool:
        """Is all recorded and counted?"""
        with self._lock:
            return not (self._queue or self._tallies or self._is_busy)

    def _work(self) -> None:
        while self._has_work():
            pause_s = GATHER_S
            try:
                self._round()
            except DatabaseFault as error:
                logger.warning("The gateway cannot record now (%s); trying again soon", str(error).strip())
                self._give_up_on_old()
                pause_s = RETRY_S
            except Exception:
                logger.exception("The gateway's recorder failed")
                pause_s = RETRY_S
            finally:
                connection.close()
            self._pause(pause_s)

    def _has_work(self) -> bool:
        """Wait for work; False if none came for a while, or the process ends and all that can be done is done."""
        until = time.monotonic() + IDLE_S
        with self._lock:
            self._is_busy = False
            while not (self._queue or self._tallies):
                if _is_ending() or time.monotonic() >= until:
                    self._has_thread = False
                    return False
                self._news.wait(GLANCE_S)
            if _is_ending() and not self._queue and self._has_failed:
                logger.error("The process ends before these numbers of the gateway were written: %s", self._tallies)
                self._has_thread = False
                return False
            self._is_busy = True
            return True

    def _round(self) -> None:
        """Record what is due, tenant by tenant, then write the numbers. Raises the database's errors."""
        self._has_failed = True
        for tenant_id, batch in self._due().items():
            try:
                reasons = self._record_batch(tenant_id, batch)
            except AWAY:
                raise
            except DatabaseFault:  # something in it cannot be kept, which a commit finds out
                reasons = [self._record_alone(tenant_id, waiting) for waiting in batch]
            self._leave(batch, reasons)
        self._write_numbers()
        self._has_failed = False

    def _due(self) -> dict[int, list[_Waiting]]:
        """Batches of one tenant each, in order of arrival."""
        now = time.monotonic()
        found: dict[int, list[_Waiting]] = {}
        with self._lock:
            for waiting in self._queue:
                batch = found.setdefault(waiting.exchange.tenant_id, [])
                if (waiting.due <= now or _is_ending()) and len(batch) < BATCH:
                    batch.append(waiting)
        return found

    def _record_batch(self, tenant_id: int, batch: list[_Waiting]) -> list[str]:
        with tenant_scope(tenant_id):
            reasons = [self._record(waiting) for waiting in batch]
            self._forget(tenant_id)
        return reasons

    def _record_alone(self, tenant_id: int, waiting: _Waiting) -> str:
        try:
            return self._record_batch(tenant_id, [waiting])[0]
        except AWAY:
            raise
        except DatabaseFault as error:
            return f"The database does not take it: {str(error).strip()}"

    def _record(self, waiting: _Waiting) -> str:
        """Record one exchange; gives the reason if that is not possible. Raises if the database is away."""
        waiting.due = 0.0
        try:
            with transaction.atomic():
                return record(waiting.exchange, may_wait=waiting.may_wait and not _is_ending())
        except NotYet:
            waiting.may_wait = False
            waiting.due = time.monotonic() + LATER_S
        except Unrecorded as error:
            return str(error)
        except AWAY:
            raise
        except Exception as error:  # one exchange that cannot be kept must not stand before all others
            logger.exception("Exchange %s was not recorded", waiting.exchange.id)
            return f"{type(error).__name__}: see the service's log for exchange {waiting.exchange.id}."
        return ""

    def _leave(self, batch: list[_Waiting], reasons: list[str]) -> None:
        """Take out of the queue what is done: what is due later still waits for another look."""
        with self._lock:
            for waiting, reason in zip(batch, reasons, strict=True):
                if not waiting.due:
                    self._queue.remove(waiting)
                    self._size -= waiting.exchange.size
                if reason:
                    self._gap(waiting.exchange, reason)

    def _give_up_on_old(self) -> None:
        now = time.monotonic()
        with self._lock:
            for waiting in [each for each in self._queue if now - each.since >= self._patience_s or _is_ending()]:
                self._queue.remove(waiting)
                self._size -= waiting.exchange.size
                self._gap(waiting.exchange, "The database did not answer.")

    def _write_numbers(self) -> None:
        for place in sorted(self._tallies):
            with self._lock:
                tally = self._tallies.pop(place)
            try:
                with tenant_scope(place.tenant_id):
                    days.write(place, tally)
            except IntegrityError:
                logger.warning("Numbers of the gateway belong to nobody any more: %s %s", place, tally)
            except BaseException:
                with self._lock:
                    tally.add(self._tallies.pop(place, Tally()))
                    self._tallies[place] = tally
                raise

    def _count(self, exchange: Exchange, tally: Tally) -> None:
        self._tallies.setdefault(days.place_of(exchange), Tally()).add(tally)

    def _gap(self, exchange: Exchange, reason: str) -> None:
        logger.warning("A request through the gateway was not recorded (%s): %s", exchange.id, reason)
        self._count(exchange, days.gap(exchange, reason))

    def _forget(self, tenant_id: int) -> None:
        """Delete histories that nobody went on from for long."""
        now = time.monotonic()
        if now - self._forgot_at.get(tenant_id, -FORGET_EVERY_S) >= FORGET_EVERY_S:
            self._forgot_at[tenant_id] = now
            until = timezone.now() - dt.timedelta(days=REMEMBERED_DAYS)
            GatewayHistory.objects.filter(seen_at__lt=until).delete()

    def _pause(self, seconds: float) -> None:
        """Sleep; less if the process ends meanwhile."""
        until = time.monotonic() + seconds
        while not _is_ending() and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, GLANCE_S))


def _is_ending() -> bool:
    return not threading.main_thread().is_alive()


@cache
def process_recorder() -> Recorder:
    return Recorder()
