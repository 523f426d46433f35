"""The tick of every 15 seconds: its steps do not wait for each other's faults."""

import logging
import os
import time
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connections

from quality import tasks
from quality.ingest import importer, otlp_store
from quality.turns import events
from tests.ingest.test_importer import queued

DAY_S = 24 * 3600


def aged(path: Path, seconds: float) -> Path:
    path.touch()
    os.utime(path, (time.time() - seconds, time.time() - seconds))
    return path


@pytest.fixture
def stray(db: None) -> Path:
    """A file that nobody knows, which the last step of a tick deletes."""
    return aged(Path(settings.MEDIA_ROOT) / "tmpabc.upload.zip", DAY_S + 60)


def broken(*args: object) -> None:
    raise RuntimeError("this step is broken")


@pytest.mark.parametrize("place", [(importer, "expired"), (otlp_store, "unread"), (events, "delete_old")])
def test_a_step_that_fails_is_logged_and_stops_no_other(
    stray: Path, place: tuple[object, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(*place, broken)
    with caplog.at_level(logging.ERROR, logger="quality.tasks"):
        tasks.tick()
    (record,) = [record for record in caplog.records if record.name == "quality.tasks"]
    assert record.exc_info is not None
    assert "The next one tries again" in record.getMessage()
    assert not stray.exists()


def test_a_connection_that_breaks_costs_one_step(
    stray: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def cut() -> None:
        with connections["janitor"].cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    monkeypatch.setattr(importer, "expired", cut)
    with caplog.at_level(logging.ERROR, logger="quality.tasks"):
        tasks.tick()
    assert [record.args for record in caplog.records if record.name == "quality.tasks"] == [("imports",)]
    assert not stray.exists()


def test_files_that_no_import_knows_are_swept_after_a_day(tenant: object, other_tenant: object, stray: Path) -> None:
    folder = Path(settings.MEDIA_ROOT)
    young = aged(folder / "tmpdef.upload.json", DAY_S - 600)
    kept = [aged(importer.stored_path(queued(one).stored_as), 2 * DAY_S) for one in (tenant, other_tenant)]
    tasks.tick()
    assert not stray.exists()
    assert young.exists()
    assert all(path.exists() for path in kept)
    young.unlink()
