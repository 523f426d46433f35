"""Exports too large to wait for: made in the background, kept for a week, fetched by who may.

The row of `exports` is the truth, a Celery message only says that it is there. A worker that dies leaves a lease that
runs out; the next one begins anew, since an export is as of one moment. Its file has a random name under
STATE_DIR/exports and is served through the page alone. Progress is written beside the long transaction that reads, and
each time it is asked whether the export is still wanted, and by whom.
"""

import datetime as dt
import errno
import hashlib
import logging
import os
import time
import uuid
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Any, BinaryIO

from django.conf import settings
from django.db import models, transaction
from django.db.models import F, Q
from django.http import QueryDict
from django.utils import timezone

from quality import export, tasks
from quality.export import Order, Reader, Written
from quality.filters import EXPORT_FORMS, query_of
from quality.models import Export, ExportState
from quality.review.queues import waiting
from quality.streaming import Busy, InThread
from tenants import audit
from tenants.models import User
from tenants.scope import tenant_scope

logger = logging.getLogger(__name__)

LEASE = dt.timedelta(seconds=90)
LIFE = dt.timedelta(days=7)
STRAY_AFTER_S = 24 * 3600.0  # a file that no row knows is deleted when it is this old
MAX_ATTEMPTS = 3
MAX_LIVE = 3  # of one tenant at once
COUNT_CAP = 1_000_000
PROGRESS_S = 1.0
LIVE = (ExportState.QUEUED, ExportState.RUNNING)
WITH_LABELS = ("calls", "feedback")
FILE_CHUNK = 256 * 1024


class TooManyExports(Exception):
    """The tenant has MAX_LIVE under way."""


class _Stopped(Exception):
    """The export is no longer ours to make: cancelled, or another worker has it."""


def order_export(order: Order, *, actor: User) -> Export:
    """Queue the making of a file, in the open scope. Raises TooManyExports."""
    if Export.objects.filter(state__in=LIVE).count() >= MAX_LIVE:
        raise TooManyExports(f"{MAX_LIVE} exports are being made. Wait for one, or cancel it.")
    job = Export.objects.create(
        kind=order.kind,
        format="csv" if order.as_csv else "jsonl",
        query=query_of(order.wanted),
        num_expected=export.count(export.as_seen(order, actor), cap=COUNT_CAP),
        schema_version=export.SCHEMA_VERSION,
        created_by=actor,
    )
    export.audited(order, Reader(actor=actor), action="export.ordered", export=job.pk, kind=order.kind)
    tenant_id, export_id = job.tenant_id, job.pk
    transaction.on_commit(lambda: tasks.publish(tasks.run_export, tenant_id, export_id))
    return job


def cancel_export(job: Export, *, actor: User) -> bool:
    """Stop it, in the open scope; False if it had ended. Its worker sees it within a second or two."""
    changed = Export.objects.filter(pk=job.pk, state__in=LIVE).update(
        state=ExportState.CANCELLED, finished_at=timezone.now(), lease_until=None
    )
    if changed:
        _record("export.cancelled", job, actor=actor)
    return bool(changed)


def order_of(job: Export) -> Order:
    """What it was asked to hold."""
    form = EXPORT_FORMS[job.kind](QueryDict(job.query))
    assert form.is_valid(), form.errors  # it was written by `query_of`
    return Order(wanted=form.wanted, as_csv=job.format == "csv")


def stored_path(stored_as: str) -> Path:
    folder = Path(settings.STATE_DIR) / "exports"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder / stored_as


def is_there(job: Export) -> bool:
    """May its file be fetched?"""
    fresh = job.expires_at is not None and job.expires_at > timezone.now()
    return job.state == ExportState.DONE and fresh and bool(job.stored_as) and stored_path(job.stored_as).is_file()


def may_fetch(job: Export, user: User) -> bool:
    """In a file are labels that who ordered it may see. From whom a blind queue keeps some, he takes his own alone."""
    return job.created_by_id == user.pk or job.kind not in WITH_LABELS or waiting.viewer_of(user) is None


def pieces_of(file: BinaryIO) -> Generator[bytes]:
    """A file in pieces; it is closed at the end."""
    with file:
        while piece := file.read(FILE_CHUNK):
            yield piece


def manifest(job: Export) -> dict[str, Any]:
    """What a file is, for who gets it: its filter, its size, its checksum."""
    return {
        "file": order_of(job).filename,
        "kind": job.kind,
        "format": job.format,
        "schemaVersion": job.schema_version,
        "filter": dict(QueryDict(job.query).lists()),
        "rows": job.num_written,
        "bytes": job.num_bytes,
        "sha256": job.sha256,
        "masks": job.masks,
        "orderedBy": job.created_by.email,
        "orderedAt": job.created_at,
        "madeAt": job.finished_at,
        "expiresAt": job.expires_at,
    }


def run_export(export_id: int, *, tenant_id: int) -> Export | None:
    """Make one file; None if another worker has it, or it is wanted no more."""
    with tenant_scope(tenant_id):
        job = _claim(export_id)
        reader = Reader(actor=job.created_by) if job else None
    if job is None or reader is None:
        return None
    path = stored_path(job.stored_as)
    try:
        _Run(job, reader, tenant_id).make(path)
    except _Stopped:
        logger.info("export %s was stopped", export_id)
        path.unlink(missing_ok=True)
        return None
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return job


def _claim(export_id: int) -> Export | None:
    """Make it ours, by a guarded update, and begin anew; None if it is not to be had."""
    now = timezone.now()
    free = Q(state=ExportState.QUEUED) | Q(state=ExportState.RUNNING, lease_until__lt=now)
    candidates = Export.objects.select_related("created_by").filter(free, pk=export_id)
    before = candidates.first()
    if before is None:
        return None
    if before.attempt >= MAX_ATTEMPTS:
        _give_up(before)
        return None
    claimed = candidates.filter(attempt=before.attempt).update(
        state=ExportState.RUNNING,
        attempt=F("attempt") + 1,
        lease_token=uuid.uuid4(),
        lease_until=now + LEASE,
        stored_as=uuid.uuid4().hex,
        started_at=now,
        num_written=0,
        num_bytes=0,
    )
    if not claimed:
        return None
    if before.stored_as:
        stored_path(before.stored_as).unlink(missing_ok=True)
    return Export.objects.select_related("created_by").get(pk=export_id)


def _give_up(job: Export) -> None:
    """Fail an export that has used up its attempts."""
    given_up = Export.objects.filter(pk=job.pk, state=job.state, attempt=job.attempt).update(
        state=ExportState.FAILED,
        failure=f"The worker was lost {MAX_ATTEMPTS} times. Narrow the filter, or order it again.",
        finished_at=timezone.now(),
        stored_as="",
    )
    if given_up and job.stored_as:
        stored_path(job.stored_as).unlink(missing_ok=True)


class _Run:
    """One attempt."""

    def __init__(self, job: Export, reader: Reader, tenant_id: int) -> None:
        self._job = job
        self._reader = reader
        self._tenant_id = tenant_id
        self._written = Written()
        self._size = 0

    def make(self, path: Path) -> None:
        """Raises _Stopped; any other fault leaves the lease, so that another attempt follows."""
        digest, saved_at = hashlib.sha256(), time.monotonic()
        order = order_of(self._job)
        chunks = export.lines(order, tenant_id=self._tenant_id, reader=self._reader, written=self._written)
        try:
            with path.open("xb") as file, closing(InThread(chunks)) as pieces:
                path.chmod(0o600)
                for piece in pieces:
                    file.write(piece)
                    digest.update(piece)
                    self._size += len(piece)
                    if time.monotonic() - saved_at >= PROGRESS_S:
                        self._save(lease_until=timezone.now() + LEASE)
                        saved_at = time.monotonic()
                file.flush()
                os.fsync(file.fileno())
        except export.ExportStopped:
            pass
        except Busy:
            self._save(state=ExportState.QUEUED, attempt=F("attempt") - 1, lease_until=None)
            raise _Stopped from None
        except OSError as error:
            logger.error("export %s: the file cannot be written (%s)", self._job.pk, error.strerror)
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            self._fail("There is no room left for the file. Ask who runs the service." if full else
                       f"The file cannot be written ({error.strerror}). Ask who runs the service.")  # fmt: skip
            path.unlink(missing_ok=True)
            return
        if not self._written.complete:
            self._fail("Who ordered it may no longer export.")
            path.unlink(missing_ok=True)
            return
        self._finish(digest.hexdigest())

    def _finish(self, sha256: str) -> None:
        now = timezone.now()
        self._save(
            state=ExportState.DONE,
            sha256=sha256,
            masks=list(self._written.masks),
            finished_at=now,
            expires_at=now + LIFE,
            lease_until=None,
            failure="",
        )

    def _fail(self, failure: str) -> None:
        self._save(
            state=ExportState.FAILED, failure=failure, finished_at=timezone.now(), lease_until=None, stored_as=""
        )

    def _save(self, **changes: Any) -> None:
        """Write the progress and these changes; raises _Stopped if the export is not ours any more."""
        job = self._job
        progress = {"num_written": self._written.num, "num_bytes": self._size}
        with tenant_scope(self._tenant_id):
            mine = Export.objects.filter(pk=job.pk, state=ExportState.RUNNING, lease_token=job.lease_token)
            if not mine.update(**progress, **changes):
                raise _Stopped
            job.refresh_from_db()
            if job.state in (ExportState.DONE, ExportState.FAILED):
                _record(f"export.{'made' if job.state == ExportState.DONE else 'failed'}", job, actor=job.created_by)


def _record(action: str, job: Export, *, actor: User | None) -> None:
    audit.record(
        action,
        object_type="export",
        object_id=job.pk,
        actor=actor,
        detail={"kind": job.kind, "format": job.format, "filter": job.query, "rows": job.num_written}
        | ({"failure": job.failure} if job.failure else {}),
    )


def downloaded(job: Export, *, actor: User) -> None:
    """Write down that the file was fetched, in the open scope."""
    _record("export.downloaded", job, actor=actor)


def lost() -> models.QuerySet[Export]:
    """Exports whose message or worker was lost, in every tenant the `janitor` may see."""
    now = timezone.now()
    gone = Q(state=ExportState.QUEUED, created_at__lt=now - LEASE) | Q(state=ExportState.RUNNING, lease_until__lt=now)
    return models.QuerySet(Export).using("janitor").filter(gone)


def sweep() -> None:
    """Delete files past their time, and those that a lost worker left behind."""
    rows: models.QuerySet[Export] = models.QuerySet(Export).using("janitor")
    due = rows.filter(state=ExportState.DONE, expires_at__lt=timezone.now())
    for tenant_id, export_id in due.values_list("tenant_id", "pk"):
        with tenant_scope(tenant_id):
            _expire(export_id)
    keep = rows.filter(state__in=(ExportState.RUNNING, ExportState.DONE)).exclude(stored_as="")
    known = set(keep.values_list("stored_as", flat=True))
    for path in stored_path("").iterdir():
        if path.name not in known and time.time() - path.stat().st_mtime > STRAY_AFTER_S:
            path.unlink(missing_ok=True)


def _expire(export_id: int) -> None:
    job = Export.objects.get(pk=export_id)
    stored_path(job.stored_as).unlink(missing_ok=True)
    Export.objects.filter(pk=export_id, state=ExportState.DONE).update(state=ExportState.EXPIRED, stored_as="")
    _record("export.expired", job, actor=None)
