import datetime as dt
import json
import uuid

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile, TemporaryUploadedFile
from django.utils import timezone

from quality import tasks
from quality.ingest import importer, reader
from quality.models import Import, ImportIssue, ImportState, ToolCall
from tenants.scope import tenant_scope
from tests.ingest.helpers import NEUTRAL, lines, state, take


def records(count: int) -> list[dict]:
    return [{**NEUTRAL, "external_id": f"run-{n}"} for n in range(count)]


@pytest.fixture
def run(tenant, tmp_path):
    """`run(data)`: a new import of these bytes, run to its end."""

    def start(data: bytes, format_name: str = importer.DETECT, **options) -> Import:
        path = tmp_path / f"{uuid.uuid4()}.jsonl"
        path.write_bytes(data)
        with tenant_scope(tenant):
            job = importer.create_import(filename="traces.jsonl", size=len(data), format_name=format_name)
        importer.run_import(job.pk, tenant=tenant, path=path, **options)
        with tenant_scope(tenant):
            return Import.objects.get(pk=job.pk)

    return start


def issues(job: Import) -> list[ImportIssue]:
    with tenant_scope(job.tenant_id):
        return list(ImportIssue.objects.filter(import_job=job).order_by("index"))


def test_a_file_is_imported_and_the_row_tells_it(run, tenant):
    data = lines(*records(30))
    job = run(data)
    assert (job.state, job.failure, job.format) == (ImportState.DONE, "", "neutral")
    assert (job.num_accepted, job.num_turns, job.num_calls, job.num_rejected) == (30, 30, 30, 0)
    assert job.bytes_read == job.bytes_total == len(data)
    assert job.finished_at >= job.started_at
    with tenant_scope(tenant):
        assert ToolCall.objects.filter(turn__import_job=job).count() == 30


def test_one_bad_of_a_hundred_is_told_with_line_field_and_reason(run, tenant):
    items = lines(*records(100)).split(b"\n")
    items[41] = b'{"tool_name": "t", "args": {"a": 1, "a": 2}}'
    items[42] = b""
    items[43] = b"{"
    items[44] = b'{"tool_name": "t", "cycle": -1}'
    job = run(b"\r\n".join(items))
    assert (job.num_accepted, job.num_rejected, job.state) == (96, 3, ImportState.DONE)
    twice, cut, negative = issues(job)
    assert (twice.index, twice.line, twice.code, twice.path) == (41, 42, "duplicate_key", "args.a")
    assert (cut.index, cut.line, cut.code) == (42, 44, "malformed_json")
    assert (negative.line, negative.code, negative.path) == (45, "out_of_range", "cycle")
    assert "line 42, column 37" in twice.message


def test_a_fault_inside_an_item_of_many_lines_is_told_by_its_own_line(run):
    job = run(b'[\n{"tool_name":\n"t",\n"args": [1,]}\n]')
    (issue,) = issues(job)
    assert (issue.line, issue.path) == (4, "args[0]")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "nothing in it"),
        (b"[]", "no traces"),
        ('[{"tool_name": "é"}]'.encode("utf-16"), "UTF-8"),
        (b"\x00\x01\x02\x03" * 99, "Expected a JSON object"),
    ],
)
def test_what_cannot_be_read_fails_with_one_clear_reason(run, data, words):
    job = run(data)
    assert job.state == ImportState.FAILED
    assert words in job.failure
    assert issues(job) == []


def test_a_latin_1_file_is_told_how_to_become_utf_8(run):
    job = run('{"tool_name": "José"}'.encode("latin-1"))
    (issue,) = issues(job)
    assert issue.code == "invalid_utf8"
    assert "iconv" in issue.message


def test_a_cut_array_keeps_its_whole_items(run):
    whole = b"[" + b",\n".join(lines(*records(5)).split(b"\n")) + b"]"
    job = run(whole[:-20])
    assert (job.num_accepted, job.num_rejected) == (4, 1)
    assert issues(job)[0].code == "truncated"


def test_what_stood_before_a_break_is_stored_and_the_break_is_told(run):
    job = run(b"[" + b",".join(lines(*records(5)).split(b"\n")) + b" {} ]")
    assert (job.num_accepted, job.state) == (5, ImportState.FAILED)
    assert "What follows was not read" in job.failure


def test_a_file_without_any_known_item_says_so_for_each(run):
    job = run(b'{"spans": 1}\n{"spans": 2}')
    assert [issue.code for issue in issues(job)] == ["unknown_format"] * 2
    assert (job.num_rejected, job.format) == (2, "auto")


def test_issues_beyond_the_cap_are_counted_not_kept(run, monkeypatch):
    monkeypatch.setattr(importer, "MAX_STORED_ISSUES", 5)
    job = run(b"\n".join([*lines(*records(1)).split(b"\n"), *[b"{"] * 2_500]))
    assert job.num_rejected == 2_500
    assert len(issues(job)) == 5


def test_progress_is_committed_batch_by_batch(run, tenant, monkeypatch):
    monkeypatch.setattr(importer, "BATCH_ITEMS", 1_000)
    seen = []

    def look(job):
        with tenant_scope(tenant):
            row = Import.objects.get(pk=job.pk)
            seen.append((row.state, row.num_accepted, ToolCall.objects.count(), row.bytes_read > 0))

    run(lines(*records(2_300)), on_progress=look)
    assert [(accepted, stored) for _, accepted, stored, _ in seen] == [(n, n) for n in (1000, 2000, 2300, 2300)]
    assert [shown for shown, *_ in seen] == ["running"] * 3 + ["done"]
    assert all(told for *_, told in seen)


def queued(tenant, **fields) -> Import:
    with tenant_scope(tenant):
        job = importer.create_import(filename="t", size=1, stored_as=uuid.uuid4().hex)
        importer.stored_path(job.stored_as).write_bytes(lines(*records(3)))
        Import.objects.filter(pk=job.pk).update(**fields)
    return job


def test_an_upload_is_kept_until_it_is_imported_and_then_gone(tenant):
    job = queued(tenant)
    done = importer.run_import(job.pk, tenant=tenant)
    assert done is not None
    assert not importer.stored_path(job.stored_as).exists()
    assert importer.run_import(job.pk, tenant=tenant) is None


def test_a_file_that_is_gone_fails_the_import(tenant):
    job = queued(tenant)
    importer.stored_path(job.stored_as).unlink()
    importer.run_import(job.pk, tenant=tenant)
    with tenant_scope(tenant):
        failed = Import.objects.get(pk=job.pk)
    assert failed.state == ImportState.FAILED
    assert "cannot be read" in failed.failure


def test_two_workers_never_run_one_import(tenant):
    soon = timezone.now() + dt.timedelta(seconds=60)
    job = queued(tenant, state=ImportState.RUNNING, lease_until=soon, lease_token=uuid.uuid4(), attempt=1)
    assert importer.run_import(job.pk, tenant=tenant) is None
    assert state(tenant)["calls"] == []


def test_a_lost_worker_s_import_is_taken_up_from_the_start(tenant):
    past = timezone.now() - dt.timedelta(seconds=1)
    job = queued(tenant, state=ImportState.RUNNING, lease_until=past, num_accepted=7, attempt=1)
    done = importer.run_import(job.pk, tenant=tenant)
    assert (done.attempt, done.num_accepted, done.state) == (2, 3, ImportState.DONE)


def test_the_attempt_after_a_lost_worker_recognises_each_format_anew(tenant, tmp_path, monkeypatch):
    monkeypatch.setattr(importer, "BATCH_ITEMS", 1_000)

    class Lost(Exception):
        pass

    def lose(job):
        with tenant_scope(tenant):
            Import.objects.filter(pk=job.pk).update(lease_until=timezone.now() - dt.timedelta(seconds=1))
        raise Lost

    path = tmp_path / "mixed.jsonl"
    call = {"id": "c", "type": "function", "function": {"name": "t", "arguments": "{}"}}
    chat = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "tool_calls": [call]}]}
    path.write_bytes(lines(*records(1_000), chat))
    with tenant_scope(tenant):
        job = importer.create_import(filename="mixed.jsonl", size=path.stat().st_size)
    with pytest.raises(Lost):
        importer.run_import(job.pk, tenant=tenant, path=path, on_progress=lose)
    done = importer.run_import(job.pk, tenant=tenant, path=path)
    assert (done.attempt, done.num_unchanged, done.num_accepted, done.num_rejected) == (2, 1_000, 1, 0)
    assert done.format == importer.DETECT  # no single one is the file's


def test_the_lease_is_held_while_nothing_comes_out_of_a_file(run, monkeypatch):
    saved, save = [], importer._Run._save
    monkeypatch.setattr(importer, "RENEW_AFTER_S", 0)
    monkeypatch.setattr(importer._Run, "_save", lambda self, **changes: (saved.append(changes), save(self, **changes)))
    job = run(lines(*[{"resourceSpans": []}] * 50_000), format_name="otel_genai")
    assert job.state == ImportState.FAILED  # there is nothing of ours in it
    assert len([changes for changes in saved if changes.get("lease_until")]) > 2


def test_pages_of_one_trace_are_told_to_come_in_one_file_and_then_are_whole(run, tenant):
    def page(number: int, **more) -> bytes:
        told = {"type": "TOOL", "name": "t", "level": "DEFAULT", "input": {"n": number}, "output": "sent"}
        started = f"2026-05-03T09:45:0{number}.000Z"
        span = {"id": f"o{number}", "traceId": "t1", "startTime": started, "endTime": started, **told}
        return lines({"data": [span], **more})

    run(page(1))
    (refused,) = issues(run(page(2)))
    assert (refused.code, refused.message.endswith("import these as one zip.")) == ("conflict", True)
    (refused,) = issues(run(page(2, meta={"cursor": "next"})))
    assert (refused.code, "until all pages come in one" in refused.message) == ("more_pages", True)
    assert run(page(1) + b"\n" + page(2)).num_rejected == 0
    assert len(state(tenant)["calls"]) == 2


def test_a_worker_that_lost_its_lease_writes_nothing_more(run, tenant, monkeypatch):
    monkeypatch.setattr(importer, "BATCH_ITEMS", 1_000)

    def take_over(job):
        with tenant_scope(tenant):
            Import.objects.filter(pk=job.pk).update(lease_token=uuid.uuid4())

    job = run(lines(*records(2_300)), on_progress=take_over)
    assert (job.state, job.num_accepted) == (ImportState.RUNNING, 1000)
    assert len(state(tenant)["calls"]) == 1000


def test_an_import_that_loses_its_worker_three_times_fails(tenant):
    past = timezone.now() - dt.timedelta(seconds=1)
    job = queued(tenant, state=ImportState.RUNNING, lease_until=past, lease_token=uuid.uuid4(), attempt=3)
    assert importer.run_import(job.pk, tenant=tenant) is None
    with tenant_scope(tenant):
        failed = Import.objects.get(pk=job.pk)
    assert failed.state == ImportState.FAILED
    assert "lost 3 times" in failed.failure
    assert not importer.stored_path(job.stored_as).exists()


def test_the_sweep_publishes_what_a_lost_message_left_in_any_tenant(tenant, other_tenant, monkeypatch):
    old = timezone.now() - dt.timedelta(minutes=5)
    queued(tenant)
    lost = queued(tenant, created_at=old)
    dead = queued(other_tenant, state=ImportState.RUNNING, lease_until=old)
    sent = []
    monkeypatch.setattr(tasks.import_traces, "delay", lambda *args: sent.append(args))
    tasks.tick()
    assert sorted(sent) == sorted([(tenant.pk, lost.pk), (other_tenant.pk, dead.pk)])


def test_a_broker_that_is_down_costs_no_import(monkeypatch):
    def refuse(*args):
        raise OSError("connection refused")

    monkeypatch.setattr(tasks.import_traces, "delay", refuse)
    tasks.publish(tasks.import_traces, 1, 2)


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_an_upload_waits_for_a_decision_and_then_its_task_imports_it(tenant, member, kind, monkeypatch):
    data = lines(*records(3))
    if kind == "memory":
        upload = SimpleUploadedFile("a\n/../b.jsonl", data)
    else:
        upload = TemporaryUploadedFile("b.jsonl", "text/plain", len(data), None)
        upload.write(data)
        upload.flush()
    sent = []
    monkeypatch.setattr(tasks.import_traces, "delay", lambda *args: sent.append(args))
    user = member().user
    with tenant_scope(tenant):
        job = importer.accept_upload(upload=upload, created_by=user)
    assert (sent, importer.run_import(job.pk, tenant=tenant)) == ([], None)
    with tenant_scope(tenant):
        assert importer.begin(job)
        assert not importer.begin(job)
        assert sent == []
    assert sent == [(tenant.pk, job.pk)]
    assert "/" not in job.filename
    tasks.import_traces(*sent[0])
    with tenant_scope(tenant):
        assert (Import.objects.get().num_accepted, Import.objects.get().created_by) == (3, user)
    upload.close()


@pytest.mark.parametrize(("options", "words"), [({"format_name": "csv"}, "csv"), ({}, "larger than")])
def test_an_upload_that_is_not_taken_says_why(tenant, settings, options, words):
    settings.IMPORT_MAX_BYTES = 4 if not options else 100
    with tenant_scope(tenant), pytest.raises(importer.UploadRefused, match=words):
        importer.accept_upload(upload=SimpleUploadedFile("a", b"12345"), **options)


def test_previews_that_nobody_decides_on_are_forgotten_after_a_day(tenant, other_tenant):
    old = timezone.now() - dt.timedelta(hours=25)
    fresh = queued(tenant, state=ImportState.PREVIEW)
    stale = [queued(one, state=ImportState.PREVIEW, created_at=old) for one in (tenant, other_tenant)]
    running = queued(tenant, state=ImportState.RUNNING, created_at=old)
    importer.discard_undecided()
    for one in (fresh, running):
        assert importer.stored_path(one.stored_as).exists()
    for one in stale:
        assert not importer.stored_path(one.stored_as).exists()
        with tenant_scope(one.tenant_id):
            assert not Import.objects.filter(pk=one.pk).exists()
    with tenant_scope(tenant):
        assert Import.objects.count() == 2


def test_files_that_wait_for_a_decision_take_so_much_room_and_no_more(tenant, settings):
    settings.IMPORT_MAX_BYTES = 10
    with tenant_scope(tenant):
        for _ in range(8):
            job = importer.accept_upload(upload=SimpleUploadedFile("a", b"0123456789"))
        with pytest.raises(importer.UploadRefused, match="Import or discard"):
            importer.accept_upload(upload=SimpleUploadedFile("a", b"0123456789"))
        assert importer.discard(job.pk)
        importer.accept_upload(upload=SimpleUploadedFile("a", b"0123456789"))


@pytest.mark.parametrize("stored", [slice(0, 3), slice(12, 17), slice(30, 40), slice(0, 40, 7)])
def test_a_file_of_which_some_is_stored_is_stored_as_if_it_were_read_alone(
    run, tenant, other_tenant, monkeypatch, stored
):
    monkeypatch.setattr(importer, "BATCH_ITEMS", 10)
    items = [
        {**record, "conversation": "c", "message": f"m{n // 3}", "index": n % 3} for n, record in enumerate(records(40))
    ]
    take(items[stored], tenant)
    job = run(lines(*items))
    already = len(items[stored])
    assert (job.num_accepted, job.num_unchanged, job.num_calls) == (40 - already, already, 40 - already)
    take(items, other_tenant)
    assert state(tenant)["calls"] == state(other_tenant)["calls"]


def test_what_was_read_before_a_break_is_stored_whatever_is_being_written(run, monkeypatch):
    monkeypatch.setattr(importer, "BATCH_ITEMS", 2)
    job = run(b"[" + b",".join(lines(*records(7)).split(b"\n")) + b" {} ]")
    assert (job.num_accepted, job.num_calls, job.state) == (7, 7, ImportState.FAILED)


def test_a_batch_is_not_left_open_while_the_file_is_slow(run, tenant, monkeypatch):
    monkeypatch.setattr(importer, "BATCH_ITEMS", 2)
    monkeypatch.setattr(importer, "SETTLE_AFTER_S", 0)
    monkeypatch.setattr(reader, "CHUNK_BYTES", 64)
    job = run(lines(*records(9)))
    assert (job.state, job.num_accepted, job.num_calls) == (ImportState.DONE, 9, 9)


def test_a_worker_that_breaks_while_a_batch_is_written_leaves_whole_batches(run, tenant, monkeypatch):
    monkeypatch.setattr(importer, "BATCH_ITEMS", 4)
    prepare, prepared = importer.prepare, list[int]()

    def break_at_the_third(batch, **options):
        prepared.append(len(batch))
        if len(prepared) == 3:
            raise MemoryError
        return prepare(batch, **options)

    monkeypatch.setattr(importer, "prepare", break_at_the_third)
    data = lines(*records(12))
    with pytest.raises(MemoryError):
        run(data)
    with tenant_scope(tenant):
        assert ToolCall.objects.count() == 4
        assert Import.objects.get().num_accepted == 4
    job = run(data)
    assert (job.num_accepted, job.num_unchanged) == (8, 4)


def test_names_and_evidence_come_through_as_they_are(run, tenant):
    odd = 'a\tb\\c\nd\re\\N"{},\\.'
    record = {**NEUTRAL, "tool_name": odd, "model": "\\N", "warnings": [odd, "", "plain"], "result": [odd, "\x01"]}
    run(lines(record))
    with tenant_scope(tenant):
        call = ToolCall.objects.get()
    assert (call.tool_name, call.model, call.warnings) == (odd, "\\N", sorted([odd, "plain"]))
    assert call.result == json.dumps([odd, "\x01"])
