"""Import a file of traces into a tenant."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from quality.ingest import importer, preview
from quality.ingest.formats import FORMATS
from quality.ingest.preview import Preview
from quality.ingest.reader import ItemError
from quality.ingest.store import foresee
from quality.models import Import, ImportIssue
from tenants.access import tenant_by_slug
from tenants.scope import tenant_scope

SHOWN_ISSUES = 100
SHOWN_ROWS = 10


class Command(BaseCommand):
    help = (
        "Import a file of traces: JSON, a JSON array, or JSON Lines, also as gzip or in a zip. Importing it again "
        "changes nothing. "
        "Exit code 0: all taken; 1: some items were refused; 2: nothing could be read."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path)
        parser.add_argument("--tenant", required=True, metavar="SLUG")
        parser.add_argument("--format", default=importer.DETECT, choices=importer.FORMAT_CHOICES, dest="format_name")
        parser.add_argument("--preview", action="store_true", help="say what is understood of it, and store nothing")

    def handle(self, *args: Any, file: Path, tenant: str, format_name: str, **options: Any) -> None:
        found = tenant_by_slug(tenant)
        if found is None:
            raise CommandError(f"There is no tenant {tenant!r}.", returncode=2)
        size = _size(file)
        if options["preview"]:
            with tenant_scope(found):
                seen = self._look_at(file, format_name)
            self._preview(file, seen)
            return
        with tenant_scope(found):
            job = importer.create_import(filename=file.name, size=size, format_name=format_name)
        done = importer.run_import(job.pk, tenant=found, path=file, on_progress=self._progress)
        if done is None:
            raise CommandError("Another worker took this import over.", returncode=2)
        with tenant_scope(found):
            issues = list(ImportIssue.objects.filter(import_job=done).order_by("index", "pk")[:SHOWN_ISSUES])
        self._report(done, issues)
        if done.num_accepted + done.num_unchanged == 0:
            sys.exit(2)
        if done.num_rejected or done.failure:
            sys.exit(1)

    def _look_at(self, file: Path, format_name: str) -> Preview:
        with file.open("rb") as opened:
            return preview.look_at(
                opened, max_bytes=settings.IMPORT_MAX_BYTES, format_name=format_name, foresee=foresee
            )

    def _preview(self, file: Path, seen: Preview) -> None:
        """Leaves with the codes of an import, as far as they are known."""
        for line in _told(file.name, seen):
            self.stdout.write(line)
        if seen.failure:
            self.stderr.write(f"{file.name}: {seen.failure}")
        if not seen.num_turns:
            sys.exit(2)
        if seen.num_refused or seen.failure:
            sys.exit(1)

    def _progress(self, job: Import) -> None:
        if sys.stderr.isatty():
            share = job.bytes_read / job.bytes_total if job.bytes_total else 1
            self.stderr.write(f"\r{share:4.0%}  {job.num_calls:,} calls, {job.num_rejected:,} refused", ending="")
            if job.finished_at:
                self.stderr.write("")

    def _report(self, job: Import, issues: list[ImportIssue]) -> None:
        unnamed = "several formats" if job.num_accepted + job.num_unchanged else "unknown format"
        label = FORMATS[job.format].LABEL if job.format in FORMATS else unnamed
        self.stdout.write(
            f"{job.filename} ({label}): {job.num_accepted:,} accepted, {job.num_unchanged:,} unchanged, "
            f"{job.num_rejected:,} rejected; {job.num_turns:,} new turns with {job.num_calls:,} new calls."
        )
        for issue in issues:
            self.stdout.write(_refusal(issue))
        if job.num_rejected > len(issues):
            self.stdout.write(f"  … and {job.num_rejected - len(issues):,} more.")
        if job.failure:
            self.stderr.write(f"{job.filename}: {job.failure}")


def _refusal(issue: ImportIssue | ItemError) -> str:
    field = f" {issue.path}:" if issue.path else ""
    return f"  line {issue.line}:{field} {issue.message} [{issue.code}]"


def _told(name: str, seen: Preview) -> Iterator[str]:
    """A preview as lines of text."""
    labels = "; ".join(f"{one.label}{', by ' if one.keys else ''}{', '.join(one.keys)}" for one in seen.formats)
    part = "all of it" if seen.is_whole else "its beginning"
    yield (
        f"{name} ({labels or 'unknown format'}): {seen.num_items:,} items ({part}), {seen.num_turns:,} turns with "
        f"{seen.num_calls:,} calls, {seen.num_results:,} outcomes, {seen.num_errors:,} errors; "
        f"{seen.num_known:,} known, {seen.num_refused:,} refused. Nothing was stored."
    )
    if seen.is_without_calls:
        yield "  No call was found in it." + ("" if seen.alternatives else " No other format finds any either.")
        yield from (f"  As {one.label}: {one.num_calls:,} calls (--format {one.name})" for one in seen.alternatives)
    for row in seen.rows[:SHOWN_ROWS]:
        yield f"  turn {row.turn}: {row.tool or 'no call'} {(row.args or '')[:100]} -> {(row.result or '')[:100]}"
    for warned in seen.warnings:
        yield f"  {warned.count:,} times: {warned.meaning} [{warned.code}]"
    for refusal in seen.refusals:
        yield _refusal(refusal)


def _size(file: Path) -> int:
    """Bytes of a file that can be read; raises CommandError."""
    if file.is_dir():
        raise CommandError(f"{file} is a folder. Name a file of traces in it.", returncode=2)
    try:
        if file.is_file():  # what comes through a pipe can be read once only
            with file.open("rb") as opened:
                opened.read(1)
        return file.stat().st_size
    except OSError as error:
        raise CommandError(f"{file} cannot be read: {error.strerror}.", returncode=2) from error
