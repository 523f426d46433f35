"""Nothing is said to people that the catalogues do not know, and what they say fits what was asked."""

import ast
import gettext
import json
import re
import sys
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest
from babel.messages import Message
from django.conf import settings

from tests.house.untranslated import Unsaid, untranslated, untranslated_in_python
from tests.service import ROOT

sys.path.insert(0, str(ROOT / "bin"))
import messages

LANGUAGES = sorted(messages.PLURALS)
ATTRIBUTES_ALONE = {"components/decide_form.html"}  # no HTML by itself: it stands inside a tag
TEMPLATES = sorted(
    path
    for path in (ROOT / "templates").rglob("*.html")
    if str(path.relative_to(ROOT / "templates")) not in ATTRIBUTES_ALONE
)
# Programs are answered in English: what the API says is no page's.
OF_PROGRAMS = ("quality/api/", "quality/gateway/", "quality/cases/")
MODULES = [
    path
    for path in messages.sources()
    if path.suffix == ".py" and not str(path.relative_to(ROOT)).startswith(OF_PROGRAMS)
]
# What still speaks English alone. It only ever gets shorter.
NOT_YET = set((ROOT / "tests/house/not_yet_translated.txt").read_text().split())


def translated(language: str) -> Iterator[Message]:
    known = messages.read(messages.paths(language)[0], language)
    assert known is not None
    yield from (message for message in known if message.id)


def test_there_is_a_catalogue_for_each_language_of_the_interface():
    assert sorted(code for code, _ in settings.LANGUAGES if code != settings.LANGUAGE_CODE) == LANGUAGES
    assert sorted(path.name for path in messages.LOCALE.iterdir() if path.is_dir()) == LANGUAGES


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_catalogue_holds_what_the_sources_say(language):
    po, mo = messages.paths(language)
    known = messages.read(po, language)
    made = messages.catalogue(language, messages.extract(), known)
    lost = {(m.context, str(m.id)) for m in known} ^ {(m.context, str(m.id)) for m in made}
    assert lost == set(), "Run `make messages`."
    assert messages.as_po(language, made) == po.read_bytes(), "Run `make messages`."
    assert messages.as_mo(language, known) == mo.read_bytes(), "Run `make messages`."


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_message_is_translated(language):
    missing = [message.id for message in translated(language) if not messages.is_translated(message)]
    assert missing == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_translations_fill_in_what_the_message_fills_in(language):
    assert [fault for message in translated(language) for fault in messages.misfits(message)] == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_compiled_catalogue_says_what_the_text_says(language):
    with messages.paths(language)[1].open("rb") as file:
        compiled = gettext.GNUTranslations(file)
    for message in translated(language):
        if not messages.is_translated(message):
            continue
        context, said = message.context, message.id
        if isinstance(said, str):
            assert (compiled.pgettext(context, said) if context else compiled.gettext(said)) == message.string
            continue
        for number in (*range(30), 100, 101, 111, 121):
            args = (said[0], said[1], number)
            told = compiled.npgettext(context, *args) if context else compiled.ngettext(*args)
            assert told in message.string


@pytest.mark.parametrize(
    ("language", "forms"),
    [
        ("it", {0: 1, 1: 0, 2: 1, 5: 1, 21: 1, 1_000_000: 1}),
        ("es", {0: 1, 1: 0, 2: 1, 5: 1, 21: 1, 1_000_000: 1}),
        ("ru", {0: 2, 1: 0, 2: 1, 4: 1, 5: 2, 11: 2, 14: 2, 21: 0, 22: 1, 25: 2, 101: 0, 111: 2, 112: 2}),
    ],
)
def test_each_number_takes_the_form_of_its_language(language, forms):
    plural = gettext.c2py(messages.PLURALS[language].partition("plural=")[2].rstrip(";"))
    assert {number: plural(number) for number in forms} == forms


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: str(path.relative_to(ROOT / "templates")))
def test_templates_ask_the_catalogue_for_what_they_say(path: Path) -> None:
    _nothing_but_what_waits(path, untranslated(path.read_text()))


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: str(path.relative_to(ROOT / "templates")))
def test_days_are_written_as_the_language_writes_them(path: Path) -> None:
    """Names of formats, which each language has its own of (quality/formats); in addresses, in single quotes, ISO."""
    if str(path.relative_to(ROOT)) not in NOT_YET:
        assert re.findall(r'\|date:"(?!(?:[A-Z_]{5,}|[cDT]|H:i)")[^"]*"', path.read_text()) == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_ask_the_catalogue_for_what_pages_say(path: Path) -> None:
    name = str(path.relative_to(ROOT))
    _nothing_but_what_waits(path, untranslated_in_python(path.read_text(), is_page=name.startswith("quality/pages/")))


def _nothing_but_what_waits(path: Path, found: list[Unsaid]) -> None:
    if str(path.relative_to(ROOT)) in NOT_YET:
        assert found, "It is done: take it off the list."
    else:
        assert [str(one) for one in found] == []


class TestTheTool:
    """What the tests above rest on: it sees what it should."""

    @pytest.mark.parametrize(
        "source",
        [
            "<p>Some words</p>",
            '<a title="Some words"></a>',
            '<input placeholder="Some words">',
            '<p>{% if x %}yes{% else %}{% translate "no" %}{% endif %}</p>',
            '{{ x|default:"none yet" }}',
            "{{ x }} call{{ x|pluralize }}",
            '{% include "a.html" with title="Some words" %}',
            "<p><kbd>x</kbd> press</p>",
            "<p>{% blocktranslate %}one{% endblocktranslate %} two</p>",
        ],
    )
    def test_finds_what_is_not_asked_for(self, source):
        assert untranslated(source)

    @pytest.mark.parametrize(
        "source",
        [
            '<p>{% translate "Some words" %}</p>',
            '<a title="{% translate \'Some words\' %}" href="/some/words" class="some words"></a>',
            "<p>{% blocktranslate trimmed count n=n %}{{ n }} call{% plural %}{{ n }} calls{% endblocktranslate %}</p>",
            '{{ x|default:_("none yet") }} {{ x|default:"–" }} {{ x|date:"SHORT_DATE_FORMAT" }}',
            "<code>some words</code> <kbd>ctrl</kbd> <p>Quality Lab · JSON Lines</p>",
            '{% comment %}Some words{% endcomment %}{# Some words #}{% url "some-name" %}',
            '{% if a == "some words" %}{% include "some/file.html" with key="word" %}{% endif %}',
            '<p translate="no">Some words</p>',
        ],
    )
    def test_lets_be_what_is(self, source):
        assert untranslated(source) == []

    @pytest.mark.parametrize(
        "source",
        [
            'messages.success(request, "Saved.")',
            'messages.success(request, f"Saved {name}.")',
            'messages.success(request, "Saved {}.".format(name))',
            'messages.success(request, "Saved." if x else _("Kept."))',
            'forms.CharField(label="Name")',
            'raise ValidationError({"name": "Not this."})',
            'raise ValidationError(["Not this."])',
            'form.add_error("name", "Not this.")',
            'raise PermissionDenied("Not you.")',
            'class State(models.TextChoices):\n    OPEN = "open", "Open"',
        ],
    )
    def test_finds_what_python_does_not_ask_for(self, source):
        assert untranslated_in_python(source, is_page=True)

    @pytest.mark.parametrize(
        "source",
        [
            'messages.success(request, _("Saved %(name)s.") % {"name": name})',
            'forms.CharField(label=_("Name"), help_text="")',
            'raise ValidationError({"name": ValidationError(_("Not this."), "code_it_is")})',
            'form.add_error("name", error)',
            'class State(models.TextChoices):\n    OPEN = "open", _("Open")',
            'class State(StrEnum):\n    OPEN = "open"',
        ],
    )
    def test_lets_python_be_where_it_asks(self, source):
        assert untranslated_in_python(source, is_page=True) == []

    def test_takes_messages_out_of_templates(self):
        source = """{% load i18n %}{% translate "It's 5 %" %}{% translate 'May' context "month" %}
        {{ x|default:_("none") }}
        {% blocktranslate trimmed with a=b count n=n %}
          {{ n }} call of <b>{{ a }}</b>{% plural %}{{ n }} calls of <b>{{ a }}</b>
        {% endblocktranslate %}{% include "a.html" with title=_("A title") %}"""
        assert {key for key, _ in messages.messages_of_template(source)} == {
            ("", "It's 5 %%"),
            ("month", "May"),
            ("", "none"),
            ("", ("%(n)s call of <b>%(a)s</b>", "%(n)s calls of <b>%(a)s</b>")),
            ("", "A title"),
        }

    def test_takes_messages_out_of_python(self):
        source = """
# Translators: Of a month.
a = pgettext_lazy("month", "May")
b = _("one " "line") % {"a": gettext(name)}
c = ngettext("%(n)d call", "%(n)d calls", n) % {"n": n}
d = self.other("not this")
"""
        assert list(messages.messages_of_python(source)) == [
            (("month", "May"), "Translators: Of a month."),
            (("", "one line"), ""),
            (("", ("%(n)d call", "%(n)d calls")), ""),
        ]

    def test_what_was_translated_stays_while_the_message_does(self, tmp_path):
        found = {("", "a"): messages.Found({"x.py"}), ("", ("%(n)s b", "%(n)s bs")): messages.Found({"a.py"})}
        made = messages.catalogue("ru", found, None)
        made.get("a").string = "а"
        made.get("%(n)s b").string = ("%(n)s б", "%(n)s бэ", "%(n)s бов", "%(n)s бы")
        po = tmp_path / "django.po"
        po.write_bytes(messages.as_po("ru", made))
        known = messages.read(po, "ru")
        assert messages.as_po("ru", messages.catalogue("ru", found, known)) == po.read_bytes()
        later = messages.catalogue(
            "ru", {("", "a"): messages.Found({"y.py"}), ("", "c"): messages.Found({"y.py"})}, known
        )
        assert [(m.id, m.string) for m in later if m.id] == [("a", "а"), ("c", None)]
        compiled = gettext.GNUTranslations(BytesIO(messages.as_mo("ru", known)))
        assert [compiled.ngettext("%(n)s b", "%(n)s bs", n) % {"n": n} for n in (1, 2, 5, 21)] == [
            "1 б",
            "2 бэ",
            "5 бов",
            "21 б",
        ]
        assert compiled.gettext("c") == "c"

    @pytest.mark.parametrize(
        ("said", "form"),
        [
            ("%(n)s calls", "chiamate"),
            ("%(n)s calls", "%(m)s chiamate"),
            ("{} calls", "chiamate"),
            ("<b>calls</b>", "chiamate"),
            ("press <kbd>x</kbd>", "premi <kbd>y</kbd>"),
            (" calls", "chiamate"),
            ("5 %%", "5 %"),
            ("calls", 'le "chiamate"'),
            ("calls & turns", "chiamate > turni"),
            (("%(n)s call", "%(n)s calls"), ("%(n)s вызов", "%(n)s вызова", "вызовов", "%(n)s вызова")),
            (("%(n)s call", "%(n)s calls"), ("вызов", "%(n)s вызова", "%(n)s вызовов", "%(n)s вызова")),
        ],
    )
    def test_sees_a_translation_that_does_not_fit(self, said, form):
        assert list(messages.misfits(Message(said, string=form)))

    @pytest.mark.parametrize(
        ("said", "form"),
        [
            ("%(a)s of %(b)s", "%(b)s: %(a)s, %(a)s"),
            ("press <kbd>x</kbd> & go", "premi <kbd>x</kbd> & vai"),
            (("one call", "%(n)s calls"), ("una chiamata", "%(n)s chiamate")),
            ("none yet", ""),
        ],
    )
    def test_lets_a_translation_be_that_fits(self, said, form):
        assert list(messages.misfits(Message(said, string=form))) == []

    def test_what_translators_send_is_taken_in_where_it_fits(self, tmp_path, monkeypatch):
        found = {("", "a %(n)s"): messages.Found({"x.py"}), ("c", ("%(n)s b", "%(n)s bs")): messages.Found({"a.py"})}
        monkeypatch.setattr(messages, "paths", lambda language: (tmp_path / "django.po", tmp_path / "django.mo"))
        (tmp_path / "django.po").write_bytes(messages.as_po("it", messages.catalogue("it", found, None)))
        lines = [json.loads(line) for line in messages.missing("it")]
        assert [(line["context"], line["id"], line["string"]) for line in lines] == [
            ("c", "%(n)s b", ["", ""]),
            ("", "a %(n)s", ""),
        ]
        lines[0]["string"], lines[1]["string"] = ["%(n)s bi", "%(n)s bibi"], "senza numero"
        refused = messages.fill("it", map(json.dumps, lines))
        assert len(refused) == 1
        assert "senza numero" in refused[0]
        assert [json.loads(line)["id"] for line in messages.missing("it")] == ["a %(n)s"]
        with (tmp_path / "django.mo").open("rb") as file:
            assert gettext.GNUTranslations(file).npgettext("c", "%(n)s b", "%(n)s bs", 5) == "%(n)s bibi"


def test_texts_are_asked_for_as_they_stand():
    """A text that is put together before it is asked for is in no catalogue."""
    found = []
    for path in messages.sources():
        if path.suffix != ".py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and messages.function(node) in messages.FUNCTIONS:
                found += [
                    f"{path.relative_to(ROOT)}:{node.lineno}"
                    for arg in node.args[: messages.FUNCTIONS[messages.function(node)]]
                    if isinstance(arg, ast.JoinedStr | ast.BinOp | ast.IfExp)
                ]
    assert found == []
