"""What is said of a record that the store refuses: which one, in the file's own words, why, and what to do."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from quality.ingest.reader import ItemError
from quality.models import Import, ImportIssue
from quality.review.items import item_of_call
from quality.review.labelling import record_label
from tenants.models import Membership, Tenant
from tenants.scope import tenant_scope
from tests.ingest.helpers import NEUTRAL, lines, take
from tests.ingest.span_files import genai_chat, genai_tool, otlp
from tests.ingest.test_importer import run  # noqa: F401  (a fixture)
from tests.ingest.test_packed import zipped
from tests.ingest.test_store import only_call

HASH = re.compile(r"[0-9a-f]{64}")


def chat(question: str, result: str = "sent", conversation: str = "chat-1") -> dict[str, Any]:
    function = {"name": "get_order", "arguments": "{}"}
    return {
        "id": conversation,
        "messages": [
            {"role": "user", "content": question},
            {"role": "assistant", "tool_calls": [{"id": "call_1", "type": "function", "function": function}]},
            {"role": "tool", "tool_call_id": "call_1", "content": result},
        ],
    }


def refused(tenant: Tenant, *files: bytes) -> ItemError:
    """The one refusal of the last file."""
    for file in files[:-1]:
        assert take(file, tenant).rejected == []
    (refusal,) = take(files[-1], tenant).rejected
    assert not HASH.search(refusal.message)
    return refusal


def test_a_chat_that_begins_otherwise_is_told_by_its_conversation_and_its_words(tenant: Tenant) -> None:
    refusal = refused(
        tenant, lines(chat("Where is 7?")), lines({**NEUTRAL, "external_id": "n"}, chat("Stop\nall of it"))
    )
    assert (refusal.index, refusal.line, refusal.code, refusal.path) == (1, 2, "conflict", "messages")
    assert "of conversation chat-1 that begins with “Where is 7?”" in refusal.message
    assert "now “Stop all of it”" in refusal.message
    assert "take back the import" in refusal.message


def test_a_call_of_a_chat_is_told_by_its_tool_and_its_id(tenant: Tenant) -> None:
    refusal = refused(tenant, lines(chat("Where is 7?")), lines(chat("Where is 7?", "lost")))
    named = "The call of get_order with the id call_1 of message #1 of conversation chat-1"
    assert refusal.message.startswith(f"{named} was stored before with another result.")
    assert "If-Match: *" in refusal.message


def test_a_call_without_a_name_of_its_own_is_told_by_its_place(tenant: Tenant) -> None:
    record = {"tool_name": "get_order", "conversation": "c-1", "message": "m-2", "index": 3, "result": 1}
    refusal = refused(tenant, lines(record), lines({**record, "result": 2}))
    assert "The call of get_order at cycle 0, index 3 of message m-2 of conversation c-1 was" in refusal.message


def test_a_call_that_has_a_name_is_told_by_it(tenant: Tenant) -> None:
    refusal = refused(tenant, lines(NEUTRAL), lines({**NEUTRAL, "result": "lost"}))
    assert refusal.message.startswith("The call run-1 was stored before with another result.")


def test_a_trace_in_two_files_says_to_send_them_as_one(tenant: Tenant) -> None:
    pages = [json.dumps(otlp(genai_tool(number, call_id=None))).encode() for number in (1, 2)]
    refusal = refused(tenant, *pages)
    assert refusal.path == "index"
    assert "one zip" in refusal.message


def test_a_call_whose_place_is_labelled_says_to_undo_the_label(
    tenant: Tenant, member: Callable[..., Membership]
) -> None:
    take(lines(NEUTRAL), tenant)
    call, author = only_call(tenant), member("operator").user
    with tenant_scope(tenant):
        record_label(item=item_of_call(call.pk), reviewer=author, label="good_reply")
    refusal = refused(tenant, lines({**NEUTRAL, "cycle": 2}))
    assert "The call run-1 has labels at cycle 0" in refusal.message
    assert "undo the labels" in refusal.message


def test_the_report_of_an_archive_says_in_which_file_and_line(run: Callable[..., Import], tenant: Tenant) -> None:  # noqa: F811
    run(lines(chat("Where is 7?")))
    job = run(zipped({"a.jsonl": lines(NEUTRAL), "b.jsonl": b"\n" + lines(chat("Stop"))}))
    with tenant_scope(tenant):
        issue = ImportIssue.objects.get(import_job=job)
    assert issue.line == 2
    assert issue.message.startswith("b.jsonl: The turn of message #0 of conversation chat-1 that begins with")


@pytest.mark.parametrize("question", ["", [{"type": "text", "text": "Look at"}, {"type": "image_url"}]])
def test_words_in_parts_and_none_are_told_too(tenant: Tenant, question: Any) -> None:
    refusal = refused(tenant, lines(chat("Where is 7?")), lines(chat(question)))
    assert f"now {'“Look at”' if question else 'none'}." in refusal.message


def test_spans_of_one_reply_are_told_by_their_trace(tenant: Tenant) -> None:
    first = json.dumps(otlp(genai_chat(1, "call_1"), genai_tool(2))).encode()
    other = json.dumps(
        otlp(genai_chat(1, "call_1"), genai_tool(2, attributes={"gen_ai.tool.call.result": "{}"}))
    ).encode()
    refusal = refused(tenant, first, other)
    assert "was stored before with another result" in refusal.message
