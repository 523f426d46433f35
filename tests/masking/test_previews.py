"""What is shown of a file before it is imported, and of what was refused, goes through the reader's rules."""

import io
import json
from collections.abc import Callable

import pytest
from django.test import Client
from django.urls import reverse

from quality.ingest import importer, preview
from quality.models import Import, ImportIssue, ImportState, OtlpTrace
from tenants.masking.masker import MARK, Masker, Rule
from tenants.masking.reading import reading_as
from tenants.masks import save_rule
from tenants.models import MaskRule, Membership, Tenant
from tenants.scope import tenant_scope
from tests.ingest.helpers import NEUTRAL, lines

MAIL, CODE = "zk.canary@example.com", "zk-open-sesame"
RULES = (
    Rule(name="mail", kind="pattern", expression="preset:email"),
    Rule(name="code", kind="key", expression="password"),
)
CHAT = {
    "messages": [
        {"role": "user", "content": f"I am {MAIL} with {CODE}"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "t", "arguments": json.dumps({"password": CODE})}}
            ],
        },
        {"role": "tool", "tool_call_id": "c", "content": f"wrote to {MAIL}"},
    ]
}
FILE = lines({**NEUTRAL, "args": {"to": MAIL, "password": CODE}, "warnings": [f"odd: {MAIL}"]}, {MAIL: "no record"})


@pytest.mark.parametrize("data", [lines(CHAT), FILE], ids=["chat", "neutral"])
def test_a_preview(data):
    look = lambda: str(preview.look_at(io.BytesIO(data), max_bytes=1_000_000))  # noqa: E731
    assert MAIL in look()
    with reading_as(Masker(RULES, b"salt")):
        seen = look()
    assert MAIL not in seen
    assert CODE not in seen
    assert {match[1] for match in MARK.finditer(seen)} == {"mail", "code"}


def test_the_pages_of_imports(tenant: Tenant, member: Callable[..., Membership]):
    with tenant_scope(tenant):
        for rule in RULES:
            save_rule(MaskRule(name=rule.name, kind=rule.kind, expression=rule.expression), actor=member("admin").user)
        waiting = importer.create_import(
            filename="a.jsonl", size=len(FILE), stored_as="f" * 32, state=ImportState.PREVIEW
        )
        importer.stored_path("f" * 32).write_bytes(FILE)
        done = importer.create_import(filename="b.jsonl", size=1, state=ImportState.FAILED)
        Import.objects.filter(pk=done.pk).update(failure=f"It ends at “{CODE}” of {MAIL}.")
        ImportIssue.objects.create(
            import_job=done, index=0, path=f"a.{MAIL}", code="c", message=f"No “{CODE}”, {MAIL}."
        )
        OtlpTrace.objects.create(trace_id="a" * 32, failure=f"It has “{CODE}” of {MAIL}.")
    pages = [
        reverse("import-list", args=[tenant.slug]),
        reverse("import-detail", args=[tenant.slug, waiting.pk]),
        reverse("import-detail", args=[tenant.slug, done.pk]),
        reverse("import-issues", args=[tenant.slug, done.pk]),
    ]
    for role, is_masked in (("admin", False), ("viewer", True)):
        browser = Client()
        browser.force_login(member(role).user)
        for page in pages:
            answer = browser.get(page)
            text = (b"".join(answer) if answer.streaming else answer.content).decode()
            assert (MAIL not in text) == is_masked, (role, page)
            assert not is_masked or CODE not in text, page
