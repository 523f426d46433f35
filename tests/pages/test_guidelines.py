"""The page of guidelines, and the panel beside an item."""

import pytest

from quality.improve import guidelines
from quality.models import GuidelineVersion
from quality.pages.prose import prose
from tests.pages.conftest import HTMX

PAGE, SAVE = "/t/acme/guidelines/", "/t/acme/guidelines/save/"


@pytest.fixture
def admin(browse):
    return browse("admin", user__name="Ada")


@pytest.fixture
def written(inside, admin):
    with inside():
        guidelines.write(text="# One\n\nbe *kind*", by=admin.member.user)
        guidelines.write(text="# Two\n\nbe *strict*", by=admin.member.user)


def test_without_any_the_page_says_the_next_step(admin, browse):
    assert "Write them" in admin.get(PAGE).text
    assert "An admin writes them here." in browse("viewer").get(PAGE).text
    assert "How we label" in admin.get(f"{PAGE}?edit").text  # something to begin with


def test_an_admin_writes_a_version(admin, inside):
    response = admin.post(SAVE, {"text": "# Be kind\r\n", "number": 0}, follow=True)
    assert "Version 1 holds now." in response.text
    assert "<h2>Be kind</h2>" in response.text
    assert "Nothing was changed." in admin.post(SAVE, {"text": "# Be kind", "number": 1}, follow=True).text
    with inside():
        assert GuidelineVersion.objects.get().text == "# Be kind"


def test_versions_are_shown_with_what_changed(admin, written):
    page = admin.get(PAGE).text
    assert "<em>strict</em>" in page
    assert "<del>- <bdi>be *kind*</bdi></del>" in page
    assert "<ins>+ <bdi>be *strict*</bdi></ins>" in page


def test_nobody_overwrites_what_he_did_not_see(admin, written, inside):
    response = admin.post(SAVE, {"text": "# Mine", "number": 1})
    assert response.status_code == 409
    assert "wrote version 2 meanwhile" in response.text
    assert "# Mine</textarea>" in response.text
    assert "be *strict*" in response.text
    with inside():
        assert guidelines.newest_number() == 2
    assert "Version 3 holds now." in admin.post(SAVE, {"text": "# Mine", "number": 2}, follow=True).text


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"text": "", "number": 0}, "cannot be empty"),
        ({"text": "x" * 50_001, "number": 0}, "the limit is 50,000"),
        ({"text": "x", "number": "one"}, "Enter a whole number"),
    ],
)
def test_bad_input_is_told_back(admin, inside, fields, told):
    response = admin.post(SAVE, fields)
    assert response.status_code == 400
    assert told in response.text
    with inside():
        assert not GuidelineVersion.objects.exists()


def test_beside_an_item_only_the_text_comes(browse, written):
    response = browse("viewer").get(PAGE, headers=HTMX)
    assert "<html" not in response.text
    assert "<em>strict</em>" in response.text
    assert "Version 2" in response.text


def test_operators_read_and_do_not_write(browse, outsider):
    operator = browse("operator")
    assert operator.get(f"{PAGE}?edit").text.count("<textarea") == 0
    assert operator.post(SAVE, {"text": "x", "number": 0}).status_code == 403
    assert outsider.get(PAGE).status_code == 404
    assert outsider.post(SAVE, {"text": "x", "number": 0}).status_code == 404


HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "[a](javascript:alert(1))",
    "[a](JaVaScRiPt&#58;alert(1))",
    "[a](data:text/html,<script>alert(1)</script>)",
    "![i](https://x.example.com/y.png)",
    '[a](https://x.example.com/"onclick="alert(1))',
    "<https://x.example.com/\" onmouseover='1'>",
    "```\n</pre><script>alert(1)</script>\n```",
    "`</code><b>`",
    "| <b> |\n|---|\n| <i onclick=x> |",
    "&lt;script&gt;",
    "> " * 300 + "deep",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_markdown_is_never_more_than_prose(text):
    html = prose(text)
    for tag in ("<script", "<img", "<b>", "<i ", 'href="javascript', 'href="data'):
        assert tag not in html.lower()
    assert " on" not in "".join(part.split(">")[0] for part in html.split("<a ")[1:]).replace(" onmouseover=%27", "")


def test_markdown_is_written_as_it_is_meant():
    assert prose("- a\n- b") == "<ul><li>a</li><li>b</li></ul>"
    assert prose("3. a\n4. b") == '<ol start="3"><li>a</li><li>b</li></ol>'
    assert prose("a **b** `c`\nd") == "<p>a <strong>b</strong> <code>c</code>\nd</p>"
    assert prose("## a") == "<h3>a</h3>"
    assert '<a href="https://example.com/?a=1&amp;b=2" rel=' in prose("[x](https://example.com/?a=1&b=2)")
