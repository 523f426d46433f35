"""Dialogs that ask first begin at the harmless answer: Enter, pressed once too often, does nothing."""

import re
from pathlib import Path

import pytest

from tests.service import ROOT

DIALOG = re.compile(r"<dialog\b.*?</dialog>", re.DOTALL)
FOCUSED = re.compile(r"<\w+\b(?:[^<>]|\{%.*?%\})*?\bautofocus\b[^<>]*>")


def asking() -> list[tuple[str, str]]:
    found = []
    for path in sorted((ROOT / "templates").rglob("*.html")):
        dialogs = [dialog for dialog in DIALOG.findall(path.read_text()) if 'method="post"' in dialog]
        found += [(f"{path.relative_to(ROOT)} {number}", dialog) for number, dialog in enumerate(dialogs)]
    return found


@pytest.mark.parametrize(("place", "dialog"), asking(), ids=[place for place, _ in asking()])
def test_a_dialog_that_asks_begins_at_the_harmless_answer(place: str, dialog: str) -> None:
    (focused,) = FOCUSED.findall(dialog)
    assert "danger" not in focused
    assert "primary" not in focused
    assert "data-closes" in focused or focused.startswith("<a ")


def test_a_page_that_asks_does_so_too() -> None:
    page = Path(ROOT / "templates/quality/pending_confirm.html").read_text()
    assert all(focused.startswith("<a ") for focused in FOCUSED.findall(page))
    assert FOCUSED.findall(page)
