"""Imports as pages: upload, preview, decision, progress, report, and taking back."""

import json
import re
from pathlib import Path

import pytest
from django.conf import settings
from django.core.files.uploadedfile import SimpleUploadedFile
from django.utils import timezone

from quality.ingest import importer, taking_back
from quality.ingest.importer import run_import
from quality.models import Case, FeedbackEvent, Import, ImportIssue, ImportState, ToolCall, Turn
from quality.review.items import item_of_call
from quality.review.labelling import record_label
from tenants.models import AuditEvent
from tenants.scope import tenant_scope
from tests.factories import CaseFactory, ImportFactory
from tests.pages.conftest import HTMX

UPLOAD = "/t/acme/imports/upload/"
GOOD = json.dumps(
    {
        "messages": [
            {"role": "user", "content": "Order 7?"},
            {"role": "assistant", "content": None, "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "get_order", "arguments": '{"n":"7"}'}}]},
            {"role": "tool", "tool_call_id": "c1", "content": '{"status":"sent"}'},
        ]
    }
)  # fmt: skip


def file(content, name="traces.jsonl"):
    return SimpleUploadedFile(name, content.encode() if isinstance(content, str) else content)


def begun(inside):
    """The only upload, decided on."""
    with inside():
        job = Import.objects.get()
        importer.begin(job)
    return job


@pytest.fixture
def queued(monkeypatch):
    """Messages that went to the broker, which no test needs."""
    sent = []
    monkeypatch.setattr("quality.tasks.import_traces.delay", lambda *args: sent.append(args))
    return sent


@pytest.fixture
def operator(browse, queued):
    return browse("operator")


@pytest.fixture
def uploads():
    folder = Path(settings.MEDIA_ROOT)
    before = set(folder.iterdir())
    return lambda: set(folder.iterdir()) - before


def test_a_file_is_kept_looked_at_imported_and_followed(operator, inside, queued, uploads, tenant):
    response = operator.post(UPLOAD, {"files": file(GOOD), "format": "auto"})
    with inside():
        job = Import.objects.get()
    assert response.url == f"/t/acme/imports/{job.pk}/"
    assert (job.filename, job.bytes_total, job.state) == ("traces.jsonl", len(GOOD), ImportState.PREVIEW)
    assert job.created_by == operator.member.user
    assert [path.name for path in uploads()] == [job.stored_as]
    page = operator.get(response.url).text
    for words in (
        "OpenAI Chat",
        "messages[].tool_calls",
        "get_order",
        "Order 7?",
        "&quot;n&quot;:&quot;7&quot;",
        "sent",
    ):
        assert words in page
    assert queued == []
    with inside():
        assert not ToolCall.objects.exists()

    assert operator.post(f"{response.url}begin/").url == response.url
    assert queued == [(tenant.pk, job.pk)]
    assert "Waits for a worker" in operator.get(response.url).text
    operator.post(f"{response.url}begin/")
    assert len(queued) == 1

    run_import(job.pk, tenant=tenant)
    page = operator.get(response.url).text
    assert ">done<" in page
    assert "Nothing was refused." in page
    assert "hx-trigger" not in page
    assert not uploads()
    with inside():
        assert ToolCall.objects.get().tool_name == "get_order"


def test_several_files_are_several_imports(operator, inside, queued):
    response = operator.post(UPLOAD, {"files": [file(GOOD, "a.json"), file(GOOD, "b.json")], "format": "openai_chat"})
    with inside():
        first, second = Import.objects.order_by("pk")
    assert response.url == f"/t/acme/imports/{first.pk}/"
    assert "1 more waits for you" in operator.get(response.url).text
    response = operator.post(f"{response.url}begin/", follow=True)
    assert response.redirect_chain[-1][0] == f"/t/acme/imports/{second.pk}/"
    assert "a.json is being imported." in response.text
    assert len(queued) == 1
    page = operator.get("/t/acme/imports/").text
    assert page.index("b.json") < page.index("a.json")


def test_htmx_is_sent_on(operator, queued):
    response = operator.post(UPLOAD, {"files": file(GOOD), "format": "auto"}, headers=HTMX)
    assert response.headers["HX-Redirect"].startswith("/t/acme/imports/")


def test_a_broker_that_is_down_delays_the_import_and_no_more(browse, inside, monkeypatch, caplog):
    def down(*args):
        raise OSError("connection refused")

    monkeypatch.setattr("quality.tasks.import_traces.delay", down)
    client = browse("operator")
    preview = client.post(UPLOAD, {"files": file(GOOD), "format": "auto"}).url
    assert client.post(f"{preview}begin/").status_code == 302
    with inside():
        assert Import.objects.get().state == ImportState.QUEUED
    assert "was not published" in caplog.text


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"files": file(b"", "nothing.json"), "format": "auto"}, "nothing.json: The file is empty."),
        ({"format": "auto"}, "Choose at least one file."),
        ({"files": file(GOOD), "format": "csv"}, "Format: Select a valid choice. csv is not"),
    ],
)
def test_what_cannot_be_imported_is_told_back(operator, inside, uploads, data, words):
    for headers in ({}, HTMX):
        if upload := data.get("files"):
            upload.seek(0)
        response = operator.post(UPLOAD, data, headers=headers)
        assert response.status_code == 200
        assert words in response.text
        assert ("<html" in response.text) == (not headers)
    with inside():
        assert not Import.objects.exists()
    assert not uploads()


def test_a_file_beyond_the_limit_is_refused_by_name_and_leaves_nothing(operator, inside, uploads, settings):
    settings.IMPORT_MAX_BYTES = 1024 * 1024
    response = operator.post(
        UPLOAD, {"files": [file(b"x" * (1024 * 1024 + 1), "huge.jsonl"), file(GOOD, "fine.jsonl")], "format": "auto"}
    )
    assert "huge.jsonl: The file is larger than 1 MiB. Split it." in response.text
    with inside():
        assert [job.filename for job in Import.objects.all()] == ["fine.jsonl"]
    assert len(uploads()) == 1


def test_files_sent_to_other_addresses_or_by_strangers_never_reach_the_disk(client, operator, uploads):
    client.post(UPLOAD, {"files": file(b"x" * 100_000)})
    client.post("/signin/", {"files": file(b"x" * 100_000)})
    operator.post("/theme/", {"files": file(b"x" * 100_000)})
    assert not uploads()


def test_progress_is_asked_for_until_the_import_is_done(operator, inside):
    with inside():
        job = ImportFactory(state=ImportState.RUNNING, bytes_total=1000, bytes_read=250, num_accepted=3, num_rejected=1)
    part = operator.get(f"/t/acme/imports/{job.pk}/progress/", headers=HTMX).text
    assert 'value="25"' in part
    assert "250 B of 1,000 B" in part
    assert 'hx-trigger="every 1s"' in part
    assert "<html" not in part
    with inside():
        Import.objects.update(state=ImportState.DONE, finished_at=timezone.now())
    assert "hx-trigger" not in operator.get(f"/t/acme/imports/{job.pk}/progress/", headers=HTMX).text


@pytest.fixture
def refused(inside):
    """An import with 120 refused items."""
    with inside():
        job = ImportFactory(state=ImportState.DONE, num_accepted=1, num_rejected=120)
        ImportIssue.objects.bulk_create(
            ImportIssue(import_job=job, index=index, line=index + 1, code="missing_field", path=f"$.field{index}",
                        message=f"Reason <b>{index}</b>\u202e")
            for index in range(120)
        )  # fmt: skip
    return job


def test_the_report_names_line_field_and_reason_page_by_page(operator, refused):
    address, seen = f"/t/acme/imports/{refused.pk}/", []
    while address:
        page = operator.get(address).text
        seen += [part.split("<")[0] for part in page.split("$.field")[1:]]
        more = re.search(r'href="([^"]+)"\s+data-key="n"', page)
        address = more[1] if more else ""
    assert seen == [str(index) for index in range(120)]
    assert "<b>0" not in page
    assert ">RLO</span>" in page


def test_the_report_can_be_had_as_a_file(operator, refused):
    response = operator.get(f"/t/acme/imports/{refused.pk}/issues.jsonl")
    lines = [json.loads(line) for line in b"".join(response.streaming_content).decode().splitlines()]
    assert len(lines) == 120
    assert lines[7] == {
        "file": refused.filename,
        "index": 7,
        "line": 8,
        "code": "missing_field",
        "path": "$.field7",
        "message": "Reason <b>7</b>\u202e",
    }


def test_a_failed_import_says_why(operator, inside):
    with inside():
        job = ImportFactory(state=ImportState.FAILED, failure="This is a ZIP archive. Unpack it.")
    assert "This is a ZIP archive. Unpack it." in operator.get(f"/t/acme/imports/{job.pk}/").text


def test_the_list_goes_on_and_takes_the_same_queries(
    operator, inside, django_assert_max_num_queries, django_assert_num_queries
):
    with inside():
        ImportFactory(filename="first.jsonl")
    with django_assert_max_num_queries(15) as first:
        operator.get("/t/acme/imports/")
    with inside():
        for _ in range(50):
            ImportFactory()
    with django_assert_num_queries(len(first.captured_queries)):
        page = operator.get("/t/acme/imports/").text
    assert "first.jsonl" not in page
    (before,) = re.findall(r'href="\?before=(\d+)"', page)
    assert "first.jsonl" in operator.get(f"/t/acme/imports/?before={before}").text
    assert operator.get("/t/acme/imports/?before=nonsense").status_code == 200


def test_a_viewer_sees_past_imports_and_no_form(browse, inside):
    with inside():
        ImportFactory(filename="past.jsonl")
    page = browse("viewer").get("/t/acme/imports/").text
    assert "past.jsonl" in page
    assert "data-upload" not in page


@pytest.mark.parametrize("query", ["before=²", "before=9999999999999999999", "before=-1", "before=x"])
def test_a_strange_place_in_the_list_is_its_beginning(browse, query):
    assert browse("viewer").get(f"/t/acme/imports/?{query}").status_code == 200


def test_what_was_imported_without_a_time_is_shown_everywhere(operator, inside, queued, tenant):
    assert "created" not in GOOD
    operator.post(UPLOAD, {"files": file(GOOD), "format": "openai_chat"})
    run_import(begun(inside).pk, tenant=tenant)
    with inside():
        job = Import.objects.get()
        call = ToolCall.objects.select_related("turn").get()
    assert not call.time_recorded
    assert not call.turn.time_recorded
    for page in ("calls/", f"calls/{call.pk}/", "review/", f"turns/{call.turn_id}/", f"imports/{job.pk}/"):
        response = operator.get(f"/t/acme/{page}", follow=True)
        assert response.status_code == 200, page
        if not page.startswith("imports"):
            assert "get_order" in response.text


def test_the_turns_of_a_chat_without_a_name_are_read_together(browse, tenant, queued):
    def turn(number: int) -> list[dict[str, object]]:
        call = {"id": f"call_{number}", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
        return [
            {"role": "user", "content": f"question {number}"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"call_{number}", "content": "found"},
            {"role": "assistant", "content": f"answer {number}"},
        ]

    chats = [{"messages": [*turn(1), *turn(2)]}, {"messages": turn(3)}]
    browse("operator").post(UPLOAD, {"format": "auto", "files": [file("\n".join(map(json.dumps, chats)))]})
    run_import(begun(lambda: tenant_scope(tenant)).pk, tenant=tenant)
    with tenant_scope(tenant):
        first, second, alone = Turn.objects.order_by("pk")
    assert first.conversation_id == second.conversation_id
    assert first.conversation_id.startswith("~")
    assert alone.conversation_id == ""
    page = browse("viewer").get(f"/t/acme/turns/{second.pk}/").text
    assert "1 earlier turn" in page


# --- preview ----------------------------------------------------------------------------------------------------------
UI = json.dumps({"id": "c", "messages": [{"role": "assistant", "parts": [
    {"type": "tool-pay", "toolCallId": "1", "state": "input-available", "input": {"eur": 12.5}}]}]})  # fmt: skip


def test_a_wrong_guess_is_corrected_and_looked_at_again(operator, inside, tenant, queued):
    chat = json.dumps({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]})
    address = operator.post(UPLOAD, {"files": file(f"{chat}\n{{"), "format": "auto"}).url
    page = operator.get(address).text
    assert "Recognised as" in page
    assert "<strong>OpenAI Chat" in page
    assert "no call: it was answered in words" in page
    assert "line 2" in page
    part = operator.post(f"{address}format/", {"format": "neutral"}, headers=HTMX).text
    assert "<html" not in part
    assert "as you said" in part
    assert "missing_field" in part
    assert operator.post(f"{address}format/", {"format": "anthropic_messages"}).url == address
    page = operator.get(address).text
    assert "Anthropic Messages</strong>, as you said" in page
    run_import(begun(inside).pk, tenant=tenant)
    with inside():
        assert Turn.objects.get().source == "anthropic_messages"
    response = operator.post(f"{address}format/", {"format": "neutral"}, headers=HTMX)
    assert response.headers["HX-Redirect"] == address
    with inside():
        assert Import.objects.get().format == "anthropic_messages"


ANTHROPIC = json.dumps({"messages": [
    {"role": "user", "content": "Is it sent?"},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "get_order", "input": {"n": "7"}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "sent"}]}]})  # fmt: skip


def test_a_format_that_finds_nothing_says_so_and_which_one_would(operator):
    address = operator.post(UPLOAD, {"files": file(ANTHROPIC), "format": "openai_chat"}).url
    page = operator.get(address).text
    assert "No call was found in it." in page
    assert "Read it as Anthropic Messages: 1 call" in page
    (form,) = re.findall(r'<form[^>]*?action="([^"]+format/)">.{0,400}?name="format" value="([^"]+)"', page, re.DOTALL)
    assert operator.post(form[0], {"format": form[1]}).url == address
    page = operator.get(address).text
    assert "Anthropic Messages</strong>, as you said" in page
    assert "No call was found" not in page
    assert re.search(r'<td class="mono tool">.{0,40}get_order', page)


@pytest.mark.parametrize("data", ['{"messages": [{"role": "user", "content": "Hi"}]}', '{"a": 1}'])
def test_a_file_in_which_no_format_finds_a_call_says_so(operator, data):
    page = operator.get(operator.post(UPLOAD, {"files": file(data), "format": "auto"}).url).text
    assert "No call was found in it." in page
    assert "No other format finds any either" in page


def test_a_viewer_sees_that_nothing_was_understood_and_no_button(operator, browse):
    address = operator.post(UPLOAD, {"files": file(ANTHROPIC), "format": "openai_chat"}).url
    page = browse("viewer").get(address).text
    assert "No call was found in it." in page
    assert "Read it as Anthropic" not in page


def test_a_preview_tells_what_is_stored_already(operator, inside, tenant, queued):
    operator.post(UPLOAD, {"files": file(GOOD), "format": "auto"})
    run_import(begun(inside).pk, tenant=tenant)
    page = operator.get(operator.post(UPLOAD, {"files": file(GOOD), "format": "auto"}).url).text
    assert re.search(r"<dt>stored already</dt>\s*<dd>\s*[1-9]", page)


def test_what_was_odd_is_said_in_words(operator):
    address = operator.post(UPLOAD, {"files": file(UI), "format": "auto"}).url
    page = operator.get(address).text
    assert "No result was recorded." in page
    assert "messages[].parts" in page


def test_a_discarded_file_leaves_nothing(operator, inside, uploads, queued):
    address = operator.post(UPLOAD, {"files": file(GOOD), "format": "auto"}).url
    response = operator.post(f"{address}discard/", follow=True)
    assert "traces.jsonl was discarded" in response.text
    assert not uploads()
    assert (operator.get(address).status_code, queued) == (404, [])
    with inside():
        assert not Import.objects.exists()


def test_an_import_that_began_cannot_be_discarded(operator, inside, uploads):
    address = operator.post(UPLOAD, {"files": file(GOOD), "format": "auto"}).url
    begun(inside)
    operator.post(f"{address}discard/")
    assert len(uploads()) == 1
    with inside():
        assert Import.objects.get().state == ImportState.QUEUED


def test_a_preview_whose_file_is_gone_says_so(operator, uploads):
    address = operator.post(UPLOAD, {"files": file(GOOD), "format": "auto"}).url
    uploads().pop().unlink()
    assert "Discard it and upload it again" in operator.get(address).text


# --- doors ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("step", ["format", "begin", "discard", "take-back"])
def test_only_operators_of_the_tenant_decide(browse, outsider, operator, inside, step):
    address = operator.post(UPLOAD, {"files": file(GOOD), "format": "auto"}).url
    data = {"format": "neutral"}
    assert outsider.post(f"{address}{step}/", data).status_code == 404
    number = address.rstrip("/").rpartition("/")[2]
    assert outsider.get(address).status_code == 404
    assert outsider.post(f"/t/globex/imports/{number}/{step}/", data).status_code == 404
    assert browse("viewer").post(f"{address}{step}/", data).status_code == 403
    with inside():
        job = Import.objects.get()
    assert (job.state, job.format) == (ImportState.PREVIEW, "auto")


# --- taking back ------------------------------------------------------------------------------------------------------
@pytest.fixture
def imported(operator, inside, tenant):
    """The address of an import of one call, which was labelled, and of which a case was made."""
    address = operator.post(UPLOAD, {"files": file(GOOD), "format": "auto"}).url
    run_import(begun(inside).pk, tenant=tenant)
    with inside():
        call = ToolCall.objects.get()
        record_label(item=item_of_call(call.pk), reviewer=operator.member.user, label="bad_args")
        CaseFactory(call=call)
    return address


@pytest.fixture
def ordered(monkeypatch):
    sent = []
    monkeypatch.setattr("quality.tasks.take_back_import.delay", lambda *args: sent.append(args))
    return sent


def test_an_import_is_taken_back_with_its_labels_once_these_were_counted(operator, inside, tenant, imported, ordered):
    assert "?ask=take-back" in operator.get(imported).text
    asked = operator.get(f"{imported}?ask=take-back").text
    for words in ("1 turn with 1 call", "1 label of 1 reviewer goes with them", "1 case made of them stays"):
        assert words in asked
    assert operator.post(f"{imported}take-back/").url == imported
    page = operator.get(imported).text
    assert "being taken back" in page
    assert 'hx-trigger="every 1s"' in page
    taking_back.run(ordered[0][1], tenant=tenant)
    page = operator.get(imported).text
    assert "took it back: 1 turn with all their calls is gone" in page
    assert "?ask=take-back" not in page
    with inside():
        assert not Turn.objects.exists()
        assert not FeedbackEvent.objects.exists()
        assert Case.objects.get().call_id is None
        names = list(AuditEvent.objects.order_by("pk").values_list("action", "detail"))
    assert [name for name, _ in names][-2:] == ["import.taking_back", "import.taken_back"]
    assert names[-2][1] == {"filename": "traces.jsonl", "turns": 1, "calls": 1, "labels": 1, "cases": 1}
    operator.post(f"{imported}take-back/")
    assert len(ordered) == 1


def test_what_was_taken_back_can_be_imported_again(operator, inside, tenant, imported, ordered):
    operator.post(f"{imported}take-back/")
    taking_back.run(ordered[0][1], tenant=tenant)
    address = operator.post(UPLOAD, {"files": file(GOOD), "format": "auto"}).url
    with inside():
        job = Import.objects.get(state=ImportState.PREVIEW)
        importer.begin(job)
    run_import(job.pk, tenant=tenant)
    with inside():
        job.refresh_from_db()
        assert (job.num_turns, job.num_calls, job.num_unchanged) == (1, 1, 0)
        assert ToolCall.objects.get().tool_name == "get_order"
    assert "?ask=take-back" in operator.get(address).text
