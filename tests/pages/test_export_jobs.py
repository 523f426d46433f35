"""Files made in the background: ordered, followed, fetched, cancelled; and whatever happens to their worker."""

import csv
import datetime as dt
import errno
import hashlib
import io
import json
import os
import threading
import time
from pathlib import Path

import pytest
from django.conf import settings as django_settings
from django.db import connection
from django.utils import timezone

from quality import export, export_jobs, tasks
from quality.calls import CallFilter
from quality.export import CaseFilter, FeedbackFilter, Order
from quality.export_jobs import order_export, run_export
from quality.models import Export
from quality.review.items import item_of_call
from quality.review.labelling import record_label
from tenants.access import change_role
from tenants.models import AuditEvent
from tests.bulk import labelled_calls
from tests.factories import CaseFactory
from tests.pages.conftest import HTMX

FOLDER = Path(django_settings.STATE_DIR) / "exports"


@pytest.fixture(autouse=True)
def small_threshold(settings):
    """More than two rows are made in the background; files of earlier tests are gone."""
    settings.EXPORT_JOB_ROWS = 2
    for path in FOLDER.glob("*"):
        path.unlink()


@pytest.fixture
def order(inside):
    """`order(admin, kind="feedback", …)`: the row of a queued export."""

    def make(admin, wanted=None, **fields):
        with inside():
            return order_export(Order(wanted=wanted or CallFilter(), **fields), actor=admin.member.user)

    return make


@pytest.fixture
def fresh(inside):
    """`fresh(job)`: the row as it is now."""

    def read(job):
        with inside():
            return Export.objects.select_related("created_by").get(pk=job.pk)

    return read


def actions(inside):
    with inside():
        found = AuditEvent.objects.filter(action__startswith="export.").order_by("id")
        return list(found.values_list("action", flat=True))


def test_above_the_threshold_the_page_orders_a_file(browse, make_call, inside, fresh):
    admin = browse("admin")
    for _ in range(2):
        make_call()
    assert "Download 2 calls" in admin.get("/t/acme/export/").text
    make_call(tool_name="book")
    page = admin.get("/t/acme/export/").text
    assert "More than 2 calls" in page
    assert "Make the file" in page
    assert "Download" not in page.replace("Each download", "")
    ordered = admin.post("/t/acme/export/order/", {"what": "calls", "query": ""})
    with inside():
        job = Export.objects.get()
    assert ordered.headers["Location"] == f"/t/acme/export/jobs/{job.pk}/"
    assert (job.state, job.num_expected, job.created_by) == ("queued", 3, admin.member.user)
    assert "Waits for a worker" in admin.get(ordered.headers["Location"]).text
    assert admin.get(f"/t/acme/export/jobs/{job.pk}/file").status_code == 404
    assert admin.get(f"/t/acme/export/jobs/{job.pk}/manifest.json").status_code == 404

    run_export(job.pk, tenant_id=job.tenant_id)

    job = fresh(job)
    assert (job.state, job.num_written, job.failure) == ("done", 3, "")
    assert job.expires_at - job.finished_at == dt.timedelta(days=7)
    detail = admin.get(f"/t/acme/export/jobs/{job.pk}/").text
    assert job.sha256 in detail
    assert "hx-trigger" not in detail  # nothing more will change
    assert f'href="/t/acme/export/jobs/{job.pk}/"' in admin.get("/t/acme/export/").text
    response = admin.get(f"/t/acme/export/jobs/{job.pk}/file")
    body = b"".join(response)
    assert response["Content-Disposition"] == 'attachment; filename="acme-tool-calls.jsonl"'
    assert response["Cache-Control"] == "no-store, private"
    assert response["X-Content-Type-Options"] == "nosniff"
    assert int(response["Content-Length"]) == len(body) == job.num_bytes
    assert hashlib.sha256(body).hexdigest() == job.sha256
    assert body == b"".join(admin.get("/t/acme/export/tool-calls.jsonl"))
    assert actions(inside) == ["export.ordered", "export.made", "export.downloaded", "export.calls"]


def test_the_manifest_says_what_the_file_is(browse, make_call, order, fresh):
    admin = browse("admin", user__email="ada@example.com")
    make_call(tool_name="book")
    since = dt.datetime(2026, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=2)))
    job = order(admin, CallFilter(tools=("book", "a&b"), since=since))
    run_export(job.pk, tenant_id=job.tenant_id)
    job = fresh(job)
    response = admin.get(f"/t/acme/export/jobs/{job.pk}/manifest.json")
    assert "attachment" in response["Content-Disposition"]
    said = json.loads(response.content)
    assert (said["file"], said["kind"], said["format"], said["schemaVersion"]) == (
        "tool-calls.jsonl",
        "calls",
        "jsonl",
        1,
    )
    assert said["filter"] == {"tool": ["book", "a&b"], "from": ["2026-01-01T00:00:00+02:00"]}
    assert (said["rows"], said["bytes"], said["sha256"]) == (1, job.num_bytes, job.sha256)
    assert said["orderedBy"] == "ada@example.com"
    assert set(said) >= {"orderedAt", "madeAt", "expiresAt"}


@pytest.mark.parametrize("kind", ["feedback", "cases", "csv"])
def test_each_kind_can_be_made(browse, make_call, inside, order, fresh, kind):
    admin = browse("admin")
    with inside():
        for label in ("bad_args", "other"):
            record_label(item=item_of_call(make_call().pk), reviewer=admin.member.user, label=label, note="=1\r\n2")
        CaseFactory()
    wanted = CaseFilter() if kind == "cases" else FeedbackFilter(labels=("bad_args",))
    job = order(admin, wanted, as_csv=kind == "csv")
    run_export(job.pk, tenant_id=job.tenant_id)
    job = fresh(job)
    assert (job.state, job.num_written) == ("done", 1)
    body = b"".join(admin.get(f"/t/acme/export/jobs/{job.pk}/file")).decode("utf-8-sig")
    if kind == "csv":
        (row,) = csv.DictReader(io.StringIO(body, newline=""))
        assert row["note"] == "'=1\r\n2"
    else:
        assert [json.loads(line)["recordType"] for line in body.splitlines()][1:] == ["_end"]


def test_a_filter_is_kept_as_it_was_meant(browse, order):
    admin = browse("admin")
    wanted = FeedbackFilter(labels=("bad_args",), until=dt.datetime(2026, 5, 1, 12, tzinfo=dt.UTC))
    job = order(admin, wanted, as_csv=True)
    assert export_jobs.order_of(job) == Order(wanted=wanted, as_csv=True)


def test_progress_is_told_to_htmx(browse, make_call, order):
    admin = browse("admin")
    make_call()
    job = order(admin)
    part = admin.get(f"/t/acme/export/jobs/{job.pk}/progress/", headers=HTMX).text
    assert "<html" not in part
    assert 'hx-trigger="every 1s"' in part
    assert "<html" in admin.get(f"/t/acme/export/jobs/{job.pk}/progress/").text


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_others_may_neither_order_nor_fetch(browse, outsider, make_call, order, fresh, inside, role):
    job = order(browse("admin"))
    run_export(job.pk, tenant_id=job.tenant_id)
    member = browse(role)
    base = f"/t/acme/export/jobs/{job.pk}"
    for path in (f"{base}/", f"{base}/progress/", f"{base}/file", f"{base}/manifest.json", "/t/acme/export/"):
        assert member.get(path).status_code == 403, path
        assert outsider.get(path).status_code == 404, path
    for path in (f"{base}/cancel/", "/t/acme/export/order/"):
        assert member.post(path, {"what": "calls"}).status_code == 403
        assert outsider.post(path, {"what": "calls"}).status_code == 404
    assert "export.downloaded" not in actions(inside)


@pytest.mark.parametrize(
    ("form", "status"),
    [
        ({"what": "secrets"}, 404),
        ({"what": "calls", "format": "csv"}, 404),
        ({"what": "calls", "query": "error=perhaps"}, 400),
        ({"what": "cases", "query": "status=pending"}, 400),
        ({}, 404),
    ],
)
def test_a_slip_orders_nothing(browse, inside, form, status):
    assert browse("admin").post("/t/acme/export/order/", form).status_code == status
    with inside():
        assert not Export.objects.exists()


def test_a_tenant_has_a_few_under_way_at_most(browse, order, inside):
    admin = browse("admin")
    jobs = [order(admin) for _ in range(export_jobs.MAX_LIVE)]
    page = admin.post("/t/acme/export/order/", {"what": "calls"}, follow=True)
    assert "exports are being made" in page.text
    admin.post(f"/t/acme/export/jobs/{jobs[0].pk}/cancel/")
    assert admin.post("/t/acme/export/order/", {"what": "calls"}).status_code == 302
    with inside():
        assert Export.objects.filter(state="queued").count() == export_jobs.MAX_LIVE


def test_a_queued_export_that_is_cancelled_is_never_made(browse, order, fresh, inside):
    admin = browse("admin")
    job = order(admin)
    page = admin.post(f"/t/acme/export/jobs/{job.pk}/cancel/", follow=True)
    assert "nothing of it is kept" in page.text
    assert run_export(job.pk, tenant_id=job.tenant_id) is None
    assert fresh(job).state == "cancelled"
    assert "had ended already" in admin.post(f"/t/acme/export/jobs/{job.pk}/cancel/", follow=True).text
    assert actions(inside) == ["export.ordered", "export.cancelled"]


def while_running(monkeypatch, inside, act):
    """Do `act` in another thread once the running export has shown its first progress."""
    monkeypatch.setattr(export_jobs, "PROGRESS_S", 0.0)
    monkeypatch.setattr(export, "RECHECK_S", 0.0)
    save, done = export_jobs._Run._save, []

    def saved(run, **changes):
        save(run, **changes)
        if not done:
            done.append(True)
            worker = threading.Thread(target=aside)
            worker.start()
            worker.join()

    def aside():
        try:
            with inside():
                act()
        finally:
            connection.close()

    monkeypatch.setattr(export_jobs._Run, "_save", saved)


@pytest.fixture
def many(browse, inside):
    """An admin of a tenant with several chunks of calls."""
    admin = browse("admin")
    with inside():
        labelled_calls(300, admin.member.user)
    return admin


def test_a_running_export_that_is_cancelled_leaves_nothing(many, order, fresh, inside, monkeypatch):
    job = order(many)
    while_running(monkeypatch, inside, lambda: export_jobs.cancel_export(job, actor=many.member.user))
    assert run_export(job.pk, tenant_id=job.tenant_id) is None
    assert fresh(job).state == "cancelled"
    assert 0 < fresh(job).num_written < 300
    assert list(FOLDER.iterdir()) == []


@pytest.mark.parametrize("as_csv", [False, True])
def test_who_may_no_longer_export_gets_no_file(many, browse, order, fresh, inside, monkeypatch, as_csv):
    boss = browse("admin").member.user
    job = order(many, FeedbackFilter(), as_csv=as_csv)
    while_running(monkeypatch, inside, lambda: change_role(membership=many.member, role="operator", actor=boss))
    run_export(job.pk, tenant_id=job.tenant_id)
    assert fresh(job).state == "failed"
    assert "may no longer export" in fresh(job).failure
    assert list(FOLDER.iterdir()) == []
    assert actions(inside)[-1] == "export.failed"


def test_another_worker_that_took_it_over_is_left_alone(many, order, fresh, inside, monkeypatch):
    """The lease ran out, a second worker made the file meanwhile: the first one throws its own away."""
    job = order(many)

    def take_over():
        Export.objects.filter(pk=job.pk).update(lease_until=timezone.now() - dt.timedelta(seconds=1))
        monkeypatch.undo()
        assert export_jobs._claim(job.pk).attempt == 2

    while_running(monkeypatch, inside, take_over)
    assert run_export(job.pk, tenant_id=job.tenant_id) is None
    assert (fresh(job).state, fresh(job).attempt) == ("running", 2)
    assert list(FOLDER.iterdir()) == []


def test_a_lost_worker_is_followed_by_another_that_begins_anew(many, order, fresh, inside):
    job = order(many)
    with inside():
        first = export_jobs._claim(job.pk)
    export_jobs.stored_path(first.stored_as).write_bytes(b"half")
    assert run_export(job.pk, tenant_id=job.tenant_id) is None  # its lease still holds
    assert not export_jobs.lost().exists()
    with inside():
        Export.objects.update(lease_until=timezone.now() - dt.timedelta(seconds=1))
    assert list(export_jobs.lost().values_list("pk", flat=True)) == [job.pk]
    assert run_export(job.pk, tenant_id=job.tenant_id).num_written == 300
    assert (fresh(job).state, fresh(job).attempt) == ("done", 2)
    assert [path.name for path in FOLDER.iterdir()] == [fresh(job).stored_as]


def test_after_three_lost_workers_it_is_given_up(browse, order, fresh, inside):
    job = order(browse("admin"))
    for _ in range(export_jobs.MAX_ATTEMPTS):
        with inside():
            claimed = export_jobs._claim(job.pk)
            Export.objects.update(lease_until=timezone.now() - dt.timedelta(seconds=1))
        export_jobs.stored_path(claimed.stored_as).write_bytes(b"half")
    assert run_export(job.pk, tenant_id=job.tenant_id) is None
    assert fresh(job).state == "failed"
    assert "lost 3 times" in fresh(job).failure
    assert list(FOLDER.iterdir()) == []


def test_the_tick_takes_up_what_was_lost_and_deletes_what_is_over(many, order, fresh, inside, monkeypatch):
    """With the rights of the janitor, as beat does it."""
    monkeypatch.setattr(tasks, "publish", lambda task, *args: task(*args))
    lost, old = order(many), order(many)
    run_export(old.pk, tenant_id=old.tenant_id)
    with inside():
        Export.objects.filter(pk=lost.pk).update(created_at=timezone.now() - dt.timedelta(minutes=5))
        Export.objects.filter(pk=old.pk).update(expires_at=timezone.now() - dt.timedelta(seconds=1))
    assert many.get(f"/t/acme/export/jobs/{old.pk}/file").status_code == 404  # at once, not at the next tick
    tasks.tick()
    assert (fresh(lost).state, fresh(old).state, fresh(old).stored_as) == ("done", "expired", "")
    assert [path.name for path in FOLDER.iterdir()] == [fresh(lost).stored_as]
    assert "seven days are over" in many.get(f"/t/acme/export/jobs/{old.pk}/").text
    assert "export.expired" in actions(inside)


def test_files_that_no_row_knows_are_swept_when_they_are_old(browse, order, fresh, inside):
    job = order(browse("admin"))
    run_export(job.pk, tenant_id=job.tenant_id)
    long_ago = time.time() - export_jobs.STRAY_AFTER_S - 60
    for name in ("old-stray", "new-stray"):
        (FOLDER / name).write_bytes(b"half")
    for name in ("old-stray", fresh(job).stored_as):
        os.utime(FOLDER / name, (long_ago, long_ago))
    export_jobs.sweep()
    assert {path.name for path in FOLDER.iterdir()} == {"new-stray", fresh(job).stored_as}


def test_a_full_disk_is_told(many, order, fresh, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    job = order(many)
    run_export(job.pk, tenant_id=job.tenant_id)
    assert fresh(job).state == "failed"
    assert "no room left" in fresh(job).failure
    assert list(FOLDER.iterdir()) == []


def test_a_file_that_is_gone_is_told(browse, order, fresh):
    admin = browse("admin")
    job = order(admin)
    run_export(job.pk, tenant_id=job.tenant_id)
    (FOLDER / fresh(job).stored_as).unlink()
    assert admin.get(f"/t/acme/export/jobs/{job.pk}/file").status_code == 404
    page = admin.get(f"/t/acme/export/jobs/{job.pk}/").text
    assert "Order the export again" in page
    assert "Download" not in page


def test_files_are_for_the_service_alone(browse, order, fresh):
    job = order(browse("admin"))
    run_export(job.pk, tenant_id=job.tenant_id)
    name = fresh(job).stored_as
    assert len(name) == 32
    assert (FOLDER / name).stat().st_mode & 0o777 == 0o600
    assert FOLDER.stat().st_mode & 0o777 == 0o700
