"""The turns of one worker process: many at once on one event loop, in a thread of its own.

A hint only wakes it. It then takes from every tenant that has something to do, in turns, so that ten thousand turns of
one tenant do not keep another waiting; it looks by itself every `TURN_SWEEP_S`, too. Database work is short and done in
a few threads; no connection is held while a model or a tool is waited for.
"""

import asyncio
import hashlib
import logging
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection, connections

from engine.net import Client
from quality.turns import leases
from quality.turns.bell import Bell
from quality.turns.carry import Carrier, save_toolset
from quality.turns.claim import Claim
from quality.turns.create import CANCEL_CHANNEL
from quality.turns.journal import Journal, LeaseLost
from quality.turns.setup import Setup

logger = logging.getLogger(__name__)

NUM_THREADS = 3
STOP_GRACE_S = 20.0  # for turns to end by themselves when the worker is told to stop
RETRY_S = 1.0
MAX_TOOLSETS = 1_000  # whose ids a process remembers
SETTLE_S = 0.02  # hints that come together make one pull


class Worker:
    """`start()` once, `wake()` from any thread, `stop()` at the end."""

    def __init__(self) -> None:
        self._carriers: dict[uuid.UUID, Carrier] = {}
        self._journal = Journal()
        self._threads = ThreadPoolExecutor(NUM_THREADS, "turns")
        self._pull_thread = ThreadPoolExecutor(1, "pull")  # holds the janitor's connection
        self._clients: dict[tuple[str, Any], Client] = {}
        self._toolsets: dict[tuple[int, bytes], int] = {}
        self._hinted: set[int] = set()
        self._loop = asyncio.new_event_loop()
        self._awake = asyncio.Event()
        self._is_stopping = False
        self._alive_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="turn-loop", daemon=True)
        self._heart = threading.Thread(target=self._beat, name="turn-heart", daemon=True)
        self._ended = threading.Event()
        self._is_drained = asyncio.Event()
        self._bell = Bell([CANCEL_CHANNEL], self._heard)

    def start(self) -> None:
        self._thread.start()
        self._heart.start()

    def wake(self, tenant_id: int | None = None) -> None:
        """There may be something to do (for this tenant)."""

        def note() -> None:
            if tenant_id is not None:
                self._hinted.add(tenant_id)
            self._awake.set()

        self._loop.call_soon_threadsafe(note)

    def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        """Claim no more, let turns end for `grace_s`, give the others back. Returns when all is written."""
        if not self._ended.is_set() and self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._wind_down(grace_s), self._loop).result()
            self._ended.set()
            self._heart.join()
            self._loop.call_soon_threadsafe(self._is_drained.set)
            self._thread.join()
            self._pull_thread.submit(connections.close_all)
            for threads in (self._threads, self._pull_thread):
                threads.shutdown()

    @property
    def num_turns(self) -> int:
        return len(self._carriers)

    # --- pulling ------------------------------------------------------------------------------------------------------
    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._pull_for_ever())

    async def _pull_for_ever(self) -> None:
        self._bell.start()
        while not self._is_stopping:
            try:
                await self._pull()
            except (DatabaseError, InterfaceError) as error:
                logger.warning("No turns can be claimed (%s); trying again", str(error).strip())
                self._loop.call_later(RETRY_S, self._awake.set)
            try:
                async with asyncio.timeout(settings.TURN_SWEEP_S):
                    await self._awake.wait()
                await asyncio.sleep(SETTLE_S)
            except TimeoutError:
                await self._free()
            self._awake.clear()
        await self._is_drained.wait()
        await self._bell.stop()
        for client in self._clients.values():
            await client.aclose()

    async def _free(self) -> None:
        """Nobody called for a while: is there a process that was stopped with turns in hand?"""
        try:
            if num := await self._loop.run_in_executor(self._pull_thread, _closing, leases.end_stopped_sessions):
                logger.warning("%s sessions of stopped processes held turns, and were ended", num)
        except (DatabaseError, InterfaceError) as error:
            logger.warning("Sessions of stopped processes were not looked for (%s)", str(error).strip())

    async def _pull(self) -> None:
        """Fill the free places, from each tenant its share."""
        hinted, self._hinted = self._hinted, set()
        free = settings.TURN_SLOTS - len(self._carriers)
        if free <= 0:
            return
        tenants = await self._loop.run_in_executor(self._pull_thread, _tenants_with_work, hinted)
        while tenants and free > 0 and not self._is_stopping:
            share = max(1, free // len(tenants))
            still = []
            for tenant_id in tenants[:free]:
                try:
                    claims = await self._loop.run_in_executor(
                        self._pull_thread, _closing, leases.claim_turns, tenant_id, share
                    )
                except leases.TenantBusy:
                    self._hinted.add(tenant_id)
                    self._loop.call_later(RETRY_S, self._awake.set)
                    continue
                for claim in claims:
                    if self._is_stopping:  # told so while we claimed
                        await self._in_thread(leases.release, claim)
                    else:
                        self._carry(claim)
                free -= len(claims)
                if len(claims) == share:
                    still.append(tenant_id)
            tenants = still

    def _carry(self, claim: Claim) -> None:
        carrier = Carrier(claim, self._journal, self._in_thread, self._client, self._toolset_id)
        self._carriers[claim.token] = carrier
        carrier.task = self._loop.create_task(self._carried(carrier), name=f"turn {claim.turn_id}")

    async def _carried(self, carrier: Carrier) -> None:
        try:
            await carrier.run()
        except asyncio.CancelledError:
            if not (carrier.is_lost or self._is_stopping):
                raise
        except LeaseLost:
            pass
        except Exception as error:
            logger.exception("turn %s failed", carrier.claim.turn_id)
            await self._fail(carrier, error)
        finally:
            if not (self._is_stopping and carrier.task is not None and carrier.task.cancelling()):
                self._carriers.pop(carrier.claim.token, None)
            self._awake.set()  # a place is free

    async def _fail(self, carrier: Carrier, error: Exception) -> None:
        if isinstance(error, (DatabaseError, InterfaceError)):
            return  # its lease will run out, and another attempt begins
        try:
            await carrier.fail(error)
        except Exception:
            logger.exception("turn %s: its failure was not kept; the sweep finds it", carrier.claim.turn_id)

    # --- what a carrier needs -----------------------------------------------------------------------------------------
    def _in_thread(self, work: Callable[..., Any], *args: Any) -> "asyncio.Future[Any]":
        return self._loop.run_in_executor(self._threads, _closing, work, *args)

    def _client(self, setup: Setup) -> Client:
        key = (setup.endpoint.base_url, setup.guard.policy)
        if key not in self._clients:
            self._clients[key] = setup.guard.client(setup.endpoint.base_url)
        return self._clients[key]

    def _toolset_id(self, tenant_id: int, text: str) -> "asyncio.Future[int | None]":
        key = tenant_id, hashlib.sha256(text.encode()).digest()  # texts may be long

        async def find() -> int | None:
            if key not in self._toolsets:
                if len(self._toolsets) >= MAX_TOOLSETS:
                    self._toolsets.clear()
                self._toolsets[key] = await self._in_thread(save_toolset, tenant_id, text)
            return self._toolsets.get(key)

        return asyncio.ensure_future(find())

    # --- leases -------------------------------------------------------------------------------------------------------
    def _beat(self) -> None:
        """One heartbeat for all turns, in a thread that a busy loop does not starve. A loop that hangs keeps none."""
        while not self._ended.wait(settings.TURN_LEASE_S / 4):
            self._loop.call_soon_threadsafe(self._note_life)
            if time.monotonic() - self._alive_at > 2 * settings.TURN_LEASE_S:
                logger.error("The loop of the turns hangs; their leases are not renewed")
                continue
            by_tenant: dict[int, list[uuid.UUID]] = {}
            for token, carrier in list(self._carriers.items()):
                by_tenant.setdefault(carrier.claim.tenant_id, []).append(token)
            for tenant_id, tokens in by_tenant.items():
                try:
                    renewed = _closing(leases.renew, tenant_id, tokens)
                except (DatabaseError, InterfaceError) as error:
                    logger.warning("Leases were not renewed (%s); trying again", str(error).strip())
                    continue
                self._loop.call_soon_threadsafe(self._heed, tokens, renewed)

    def _note_life(self) -> None:
        self._alive_at = time.monotonic()

    def _heed(self, tokens: list[uuid.UUID], renewed: leases.Renewed) -> None:
        for token in tokens:
            carrier = self._carriers.get(token)
            if carrier is None:
                continue
            if token not in renewed.kept:
                carrier.lose()
            elif token in renewed.cancelled:
                carrier.cancel.set()

    def _heard(self, channel: str, payload: str) -> None:
        """Somebody wants to end a turn, perhaps one of ours."""
        for carrier in self._carriers.values():
            if str(carrier.claim.turn_id) == payload:
                carrier.cancel.set()

    # --- the end ------------------------------------------------------------------------------------------------------
    async def _wind_down(self, grace_s: float) -> None:
        self._is_stopping = True
        self._awake.set()
        tasks = {token: carrier.task for token, carrier in self._carriers.items() if carrier.task is not None}
        if tasks:
            _, unfinished = await asyncio.wait(tasks.values(), timeout=grace_s)
            given_back = [self._carriers[token] for token, task in tasks.items() if task in unfinished]
            for carrier in given_back:
                assert carrier.task is not None
                carrier.task.cancel()
            await asyncio.gather(*unfinished, return_exceptions=True)
            for carrier in given_back:
                if not carrier.is_lost:
                    await self._in_thread(leases.release, carrier.claim)
                self._carriers.pop(carrier.claim.token, None)
        self._journal.close()


def _closing(work: Callable[..., Any], *args: Any) -> Any:
    """Do database work and give the connection back to the pool."""
    try:
        return work(*args)
    finally:
        connection.close()


def _tenants_with_work(hinted: set[int]) -> list[int]:
    """In the order in which they wait. Without a janitor only those that a hint named."""
    if "janitor" not in connections:
        return sorted(hinted)
    try:
        return leases.tenants_with_work()
    except DatabaseError:
        connections["janitor"].close()
        raise


_lock = threading.Lock()


@lru_cache(maxsize=1)
def _started() -> Worker:
    worker = Worker()
    worker.start()
    return worker


def process_worker() -> Worker:
    """This process's worker, started by the first that asks for it."""
    with _lock:
        return _started()


def stop_process_worker() -> None:
    """Stop it, if there is one."""
    with _lock:
        if _started.cache_info().currsize:
            began = time.monotonic()
            worker = _started()
            num_turns = worker.num_turns
            worker.stop()
            logger.info("Stopped with %s turns under way, after %.1f s", num_turns, time.monotonic() - began)
