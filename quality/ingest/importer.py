"""A whole file: claimed by one worker, read batch by batch, with live progress and a report per item.

The row of `imports` is the truth. An upload waits as a preview until somebody imports or discards it. A worker that
dies leaves a lease that runs out; the next one begins again from the first byte, which is harmless because the store is
idempotent.
"""

import datetime as dt
import io
import logging
import shutil
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from django.conf import settings
from django.core.files.uploadedfile import UploadedFile
from django.db import models, transaction
from django.db.models import F, Q
from django.utils import timezone

from quality import tasks
from quality.ingest.files import TraceFile
from quality.ingest.formats import FORMATS
from quality.ingest.items import Parsed
from quality.ingest.reader import ItemError, Unreadable
from quality.ingest.store import BatchReport, Prepared, Storing, batches, prepare, store
from quality.ingest.tables import Raced
from quality.ingest.traces import AUTO
from quality.models import Import, ImportIssue, ImportState
from tenants import audit, masks
from tenants.models import Tenant, User
from tenants.scope import tenant_scope

logger = logging.getLogger(__name__)

LEASE = dt.timedelta(seconds=90)  # one batch takes a second or two
RENEW_AFTER_S = 20  # where no batch comes: gigabytes of a trace file may hold spans of others only
BATCH_ITEMS = 2_000
SETTLE_AFTER_S = 0.5  # a batch that is written holds the tenant's lock of ingest
MAX_ATTEMPTS = 3
MAX_STORED_ISSUES = 10_000  # more are counted, not kept
UNDECIDED_FOR = dt.timedelta(days=1)
WAITING_TIMES = 8  # what may wait for decisions in a tenant, by what may come in as one file

DETECT = AUTO
FORMAT_CHOICES = (DETECT, *FORMATS)


class UploadRefused(ValueError):
    """A file that is not even taken; the message says why, for people."""


class LeaseLost(Exception):
    """Another worker has this import now."""


def accept_upload(*, upload: UploadedFile, format_name: str = DETECT, created_by: User | None = None) -> Import:
    """Keep an uploaded file as a preview, in the open scope; raises UploadRefused."""
    size = upload.size or 0
    if size > settings.IMPORT_MAX_BYTES:
        limit = settings.IMPORT_MAX_BYTES // (1024 * 1024)
        raise UploadRefused(f"The file is larger than {limit} MiB. Split it and import the parts.")
    if format_name not in FORMAT_CHOICES:
        raise UploadRefused(f"There is no format {format_name!r}. Choose one of: {', '.join(FORMAT_CHOICES)}.")
    waiting = Import.objects.filter(state=ImportState.PREVIEW).aggregate(size=models.Sum("bytes_total"))["size"] or 0
    if waiting + size > settings.IMPORT_MAX_BYTES * WAITING_TIMES:
        raise UploadRefused("Too much waits for a decision. Import or discard some of it first.")
    stored_as = uuid.uuid4().hex
    path = stored_path(stored_as)
    if hasattr(upload, "temporary_file_path"):
        shutil.move(upload.temporary_file_path(), path)
    else:
        with path.open("xb") as file:
            file.writelines(upload.chunks())
    path.chmod(0o600)
    return create_import(
        filename=upload.name or "",
        stored_as=stored_as,
        size=size,
        format_name=format_name,
        created_by=created_by,
        state=ImportState.PREVIEW,
    )


def create_import(
    *,
    filename: str,
    size: int,
    stored_as: str = "",
    format_name: str = DETECT,
    created_by: User | None = None,
    state: ImportState = ImportState.QUEUED,
) -> Import:
    """The row of an import, in the open scope."""
    shown = "".join(character if character.isprintable() else "\ufffd" for character in filename)[:255]
    return Import.objects.create(
        filename=shown, stored_as=stored_as, bytes_total=size, format=format_name, created_by=created_by, state=state
    )


def correct_format(import_id: int, format_name: str) -> bool:
    """Read a preview's file as another format, in the open scope; False if it is no preview any more."""
    previews = Import.objects.filter(pk=import_id, state=ImportState.PREVIEW)
    return bool(previews.update(format=format_name))


def begin(job: Import) -> bool:
    """Import what was previewed, in the open scope; False if that was decided before."""
    if not Import.objects.filter(pk=job.pk, state=ImportState.PREVIEW).update(state=ImportState.QUEUED):
        return False
    tenant_id, import_id = job.tenant_id, job.pk
    transaction.on_commit(lambda: tasks.publish(tasks.import_traces, tenant_id, import_id))
    return True


def discard(import_id: int) -> bool:
    """Forget a preview and its file, in the open scope; False if it was decided before."""
    previews = Import.objects.select_for_update(of=("self",)).filter(pk=import_id, state=ImportState.PREVIEW)
    job = previews.first()
    if job is None:
        return False
    stored_path(job.stored_as).unlink(missing_ok=True)
    job.delete()
    return True


def stored_path(stored_as: str) -> Path:
    return Path(settings.MEDIA_ROOT) / stored_as


def run_import(
    import_id: int,
    *,
    tenant: Tenant | int,
    path: Path | None = None,
    on_progress: Callable[[Import], None] = lambda job: None,
) -> Import | None:
    """Import one file; None if another worker has it or it is done. `path` is for files that are not uploads."""
    with tenant_scope(tenant):
        job = _claim(import_id)
    if job is None:
        return None
    upload = stored_path(job.stored_as) if job.stored_as else None
    file = path or upload
    assert file is not None
    try:
        _Run(job, tenant, on_progress).read(file)
    except LeaseLost:
        logger.warning("import %s: another worker took it over", import_id)
        return None
    if upload:
        upload.unlink(missing_ok=True)
    return job


def _claim(import_id: int) -> Import | None:
    """Make the import ours, by a guarded update, and begin it anew; None if it is not to be had."""
    now, token = timezone.now(), uuid.uuid4()
    free = Q(state=ImportState.QUEUED) | Q(state=ImportState.RUNNING, lease_until__lt=now)
    candidates = Import.objects.filter(free, pk=import_id)
    claimed = candidates.filter(attempt__lt=MAX_ATTEMPTS).update(
        state=ImportState.RUNNING,
        attempt=F("attempt") + 1,
        lease_token=token,
        lease_until=now + LEASE,
        started_at=now,
        bytes_read=0,
        num_accepted=0,
        num_unchanged=0,
        num_rejected=0,
        num_turns=0,
        num_calls=0,
    )
    if not claimed:
        _give_up(candidates.filter(attempt__gte=MAX_ATTEMPTS).first())
        return None
    ImportIssue.objects.filter(import_job=import_id).delete()
    return Import.objects.get(pk=import_id)


def _give_up(job: Import | None) -> None:
    """Fail an import that has used up its attempts."""
    if job is None:
        return
    failure = f"The worker was lost {MAX_ATTEMPTS} times. What was read before is stored; import the file again."
    given_up = Import.objects.filter(pk=job.pk, lease_token=job.lease_token).update(
        state=ImportState.FAILED, failure=failure, finished_at=timezone.now(), stored_as=""
    )
    if given_up and job.stored_as:
        stored_path(job.stored_as).unlink(missing_ok=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    """Items of the file, and what was known of it when they were read."""

    good: list[Parsed]
    bad: list[ItemError]
    named: Callable[[ItemError], ItemError]
    bytes_read: int
    recognised: str


@dataclass(frozen=True, slots=True)
class _Pending:
    """A batch whose rows are being written: its transaction is open, nothing else may be asked of the database."""

    batch: _Batch
    storing: Storing
    scope: ExitStack
    begun_at: float

    def abandon(self) -> None:
        """Take back what was written of it."""
        self.storing.abandon()
        with suppress(_Abandoned), self.scope:
            raise _Abandoned


class _Abandoned(Exception):
    """Rolls a batch's transaction back."""


class _Run:
    """One attempt at an import. Each batch, its issues and the progress are one transaction."""

    def __init__(self, job: Import, tenant: Tenant | int, on_progress: Callable[[Import], None]) -> None:
        self._job = job
        self._tenant = tenant
        self._on_progress = on_progress
        self._num_issues = 0
        self._recognised = ""
        self._saved_at = time.monotonic()
        self._pending: _Pending | None = None
        self._all_new = True  # nothing of the last batch was stored before
        with tenant_scope(tenant):
            self._masker = masks.at_write()

    def read(self, path: Path) -> None:
        """Raises LeaseLost."""
        try:
            with _Watched(path, self._keep) as file:
                traces = TraceFile(file, max_bytes=settings.IMPORT_MAX_BYTES, format_name=self._job.format)
                self._store(traces)
                self._job.bytes_read = traces.bytes_read
        except Unreadable as error:
            self._finish(error.message)
        except OSError as error:
            logger.error("import %s: the file cannot be read (%s)", self._job.pk, error.strerror)
            self._finish(f"The file cannot be read ({error.strerror}). Import it again.")
        else:
            nothing = self._job.num_accepted + self._job.num_unchanged + self._job.num_rejected == 0
            self._finish("There are no traces in it." if nothing else "")

    def _store(self, traces: TraceFile) -> None:
        """Store batch after batch. While the database writes one, the next is read and prepared. Raises LeaseLost,
        Unreadable, OSError; what was read before is stored then."""
        try:
            for good, bad in batches(iter(traces), max_items=BATCH_ITEMS):
                is_one = len(traces.telling) <= 1
                batch = _Batch(
                    good=good,
                    bad=bad,
                    named=traces.named,
                    bytes_read=traces.bytes_read,
                    recognised=traces.format.NAME if traces.format and is_one else "",
                )
                prepared = prepare(good, import_id=self._job.pk, masker=self._masker) if self._all_new else None
                self._settle()
                if prepared and self._all_new:
                    self._begin(batch, prepared)
                else:
                    self._store_now(batch)
        except (Unreadable, OSError):
            self._settle()
            raise
        except BaseException:
            if self._pending:
                self._pending.abandon()
            raise
        self._settle()

    def _begin(self, batch: "_Batch", prepared: Prepared) -> None:
        """Open the batch's transaction, and let the database write; raises LeaseLost."""
        try:
            with ExitStack() as scope:
                scope.enter_context(tenant_scope(self._tenant))
                storing = Storing(prepared, tenant=self._tenant)
                self._pending = _Pending(batch, storing, scope.pop_all(), time.monotonic())
        except Raced:
            self._store_now(batch)

    def _settle(self) -> None:
        """End the transaction of the batch that is being written, if there is one; raises LeaseLost."""
        pending, self._pending = self._pending, None
        if pending is None:
            return
        try:
            with pending.scope:
                self._record(pending.batch, pending.storing.finish())
        except Raced:
            self._store_now(pending.batch)
        else:
            self._on_progress(self._job)

    def _store_now(self, batch: "_Batch") -> None:
        """Store a batch of which something may be stored; raises LeaseLost."""
        with tenant_scope(self._tenant):
            self._masker = masks.at_write()
            report = store(batch.good, tenant=self._tenant, import_id=self._job.pk)
            self._record(batch, report)
        self._all_new = report.is_new
        self._on_progress(self._job)

    def _record(self, batch: "_Batch", report: BatchReport) -> None:
        """Issues and progress, in the batch's transaction."""
        refused = [batch.named(issue) for issue in [*batch.bad, *report.rejected]]
        self._add(report.accepted, report.unchanged, refused)
        self._job.num_turns += report.num_turns
        self._job.num_calls += report.num_calls
        self._job.bytes_read = batch.bytes_read
        self._recognised = batch.recognised
        self._save(lease_until=timezone.now() + LEASE)

    def _keep(self) -> None:
        """Before each read of the file: let no batch wait long for the next one to be read, and hold the lease while
        nothing comes out of the file. Raises LeaseLost."""
        now = time.monotonic()
        if self._pending and now - self._pending.begun_at >= SETTLE_AFTER_S:
            self._settle()
        if not self._pending and now - self._saved_at >= RENEW_AFTER_S:
            with tenant_scope(self._tenant):
                self._save(lease_until=timezone.now() + LEASE)

    def _add(self, accepted: int, unchanged: int, rejected: list[ItemError]) -> None:
        self._job.num_accepted += accepted
        self._job.num_unchanged += unchanged
        self._job.num_rejected += len(rejected)
        kept = [self._spared(issue) for issue in rejected[: max(0, MAX_STORED_ISSUES - self._num_issues)]]
        self._num_issues += len(kept)
        ImportIssue.objects.bulk_create(
            ImportIssue(
                import_job=self._job,
                index=issue.index,
                line=issue.line,
                code=issue.code,
                path=issue.path,
                message=issue.message,
            )
            for issue in kept
        )

    def _spared(self, issue: ItemError) -> ItemError:
        """What refuses an item quotes it."""
        if self._masker is None:
            return issue
        path, message = self._masker.prose(issue.path), self._masker.sentence(issue.message)
        return replace(issue, path=path, message=message)

    def _finish(self, failure: str) -> None:
        """Close the job. A failure says what of the file was not read; what was read is stored. The format, if it is
        one, is told only now: an attempt that follows has to recognise anew, for a file may hold several."""
        self._job.failure = self._masker.sentence(failure) if self._masker else failure
        self._job.format = self._recognised or self._job.format
        with tenant_scope(self._tenant):
            self._save(
                state=ImportState.FAILED if failure else ImportState.DONE,
                finished_at=timezone.now(),
                lease_until=None,
                stored_as="",
            )
            audit.record(
                "import.finished",
                object_type="import",
                object_id=self._job.pk,
                actor=self._job.created_by,
                detail={
                    "filename": self._job.filename,
                    "accepted": self._job.num_accepted,
                    "unchanged": self._job.num_unchanged,
                    "rejected": self._job.num_rejected,
                },
            )
        self._on_progress(self._job)

    def _save(self, **changes: object) -> None:
        """Write the progress and these changes, if the lease is still ours."""
        job = self._job
        progress = {
            field: getattr(job, field)
            for field in (
                "bytes_read",
                "num_accepted",
                "num_unchanged",
                "num_rejected",
                "num_turns",
                "num_calls",
                "format",
                "failure",
            )
        }
        if not Import.objects.filter(pk=job.pk, lease_token=job.lease_token).update(**progress, **changes):
            raise LeaseLost
        for field, value in changes.items():
            setattr(job, field, value)
        self._saved_at = time.monotonic()


class _Watched(io.FileIO):
    """A file that calls before each read."""

    def __init__(self, path: Path, before_read: Callable[[], None]) -> None:
        super().__init__(path, "rb")
        self._before_read = before_read

    def read(self, size: int | None = -1) -> bytes:
        self._before_read()
        return super().read(size) or b""


def expired() -> models.QuerySet[Import]:
    """Imports whose message or worker was lost, in every tenant the `janitor` may see."""
    now = timezone.now()
    lost = Q(state=ImportState.QUEUED, created_at__lt=now - LEASE) | Q(state=ImportState.RUNNING, lease_until__lt=now)
    return models.QuerySet(Import).using("janitor").filter(lost)


def discard_undecided() -> None:
    """Forget previews on which nobody decided for a day, in every tenant."""
    waiting: models.QuerySet[Import] = models.QuerySet(Import).using("janitor")
    old = waiting.filter(state=ImportState.PREVIEW, created_at__lt=timezone.now() - UNDECIDED_FOR)
    for tenant_id, import_id in old.values_list("tenant_id", "pk"):
        with tenant_scope(tenant_id):
            discard(import_id)
