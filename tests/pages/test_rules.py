"""Rules that the templates and the pages' code keep, read from their text."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEMPLATES = sorted((ROOT / "templates").rglob("*.html"))
CODE = [*sorted((ROOT / "quality").rglob("*.py")), *sorted((ROOT / "tenants").rglob("*.py"))]
BANNED = {
    "|safe": "data would be taken for HTML",
    "autoescape off": "data would be taken for HTML",
    "hx-on": "the policy runs no inline script",
    "js:": "the policy runs no inline script",
    " style=": "the policy takes no inline style",
    " onclick=": "the policy runs no inline script",
    "javascript:": "the policy runs no inline script",
}


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: str(path.relative_to(ROOT)))
def test_templates_mark_nothing_safe_and_hold_nothing_inline(template):
    text = template.read_text()
    html = re.sub(r"{%.*?%}", "", text)  # a tag's own variables may be called as an attribute is
    assert [word for word in BANNED if word in (html if word.startswith(" ") else text)] == []
    assert re.findall(r"<script(?![^>]*\bsrc=)", text) == []
    assert re.findall(r"<style", text) == []


def test_htmx_evaluates_nothing_and_keeps_nothing():
    config = json.loads(
        re.search(r"name=\"htmx-config\"\s+content='([^']+)'", (ROOT / "templates/base.html").read_text())[1]
    )
    locked = {"allowEval": False, "allowScriptTags": False, "selfRequestsOnly": True, "historyCacheSize": 0}
    assert config | locked | {"includeIndicatorStyles": False} == config


def test_no_code_marks_data_as_safe():
    assert [path.name for path in CODE if "mark_safe" in path.read_text() or "SafeString(" in path.read_text()] == []


def test_every_key_of_a_page_is_printed_on_what_it_presses():
    for template in TEMPLATES:
        text = template.read_text()
        for element, key in re.findall(r'<(?:a|button|summary)\b([^>]*?data-key="([^"{]+)"[^>]*)>', text):
            rest = text.split(element, 1)[1].split("</a>")[0].split("</button>")[0].split("</summary>")[0]
            printed = "Esc" if key == "?" and "Close" in rest[:40] else key
            assert f"<kbd>{printed}</kbd>" in rest, f"{template.name}: {key}"
