"""Numbers on pages are grouped by thousands for people; what a page sends back must not be."""

import re
from pathlib import Path

import pytest

from tests.service import ROOT

TEMPLATES = sorted((ROOT / "templates").rglob("*.html"))
SENT = re.compile(
    r'\b(?:value|href|action|hx-[a-z]+)="[^"]*?\{\{ *([a-z_.]*\b(?:pk|last_pk|version|cycle|[a-z]+_id)) *\}\}'
)
TEXT = {"style_id", "conversation_id", "contact_id", "message_id", "external_id", "public_id"}


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: str(path.relative_to(ROOT / "templates")))
def test_ids_and_versions_are_sent_as_plain_digits(path: Path) -> None:
    found = [name for name in SENT.findall(path.read_text()) if name.rpartition(".")[2] not in TEXT]
    assert found == [], 'Write {{ …|stringformat:"d" }}: 1234 would be sent as 1,234.'
