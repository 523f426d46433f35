#!/usr/bin/env python
"""Catalogues of translations: what templates and Python say, taken into locale/*/LC_MESSAGES/django.po and compiled.

    .venv/bin/python bin/messages.py                  take new messages in, drop those that are gone, compile
    .venv/bin/python bin/messages.py --check          change nothing; say what is out of date or not translated
    .venv/bin/python bin/messages.py --missing it     what is to be translated, a JSON object a line
    .venv/bin/python bin/messages.py --fill it FILE   the same lines with `string` (a list where there is a plural)
                                                      filled in; what does not fit is refused and named

Needs Babel and Django alone, not gettext's own programs. The same sources give the same bytes: no dates, no line
numbers, one order. What was translated stays while the message stays to the letter; nothing is guessed.
"""

import argparse
import ast
import fcntl
import json
import re
import struct
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path

from babel.messages import Catalog, Message
from babel.messages.pofile import read_po, write_po
from django.utils.translation.template import templatize

ROOT = Path(__file__).resolve().parent.parent
LOCALE = ROOT / "locale"
CODE = ("quality", "tenants")
PLURALS = {
    "it": "nplurals=2; plural=(n != 1);",
    "es": "nplurals=2; plural=(n != 1);",
    # one, few, many, and what fractions take
    "ru": (
        "nplurals=4; plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 && (n%100<12 || n%100>14) ? 1 : "
        "n%10==0 || (n%10>=5 && n%10<=9) || (n%100>=11 && n%100<=14) ? 2 : 3);"
    ),
}
# How many texts each function takes from its beginning; those whose names begin with p or np take a context before.
FUNCTIONS = {"_": 1, "gettext": 1, "ngettext": 2, "pgettext": 1, "npgettext": 2}
_COMMENT = "# Translators:"
_STRING = r"""u?(?:'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")"""
_CALL = re.compile(rf"(?<!\w)(gettext|ngettext|pgettext|npgettext|_)\(\s*({_STRING}(?:\s*,\s*{_STRING})*)")

type Id = str | tuple[str, str]  # a message, or its singular and plural
type Key = tuple[str, Id]  # context and message


@dataclass
class Found:
    """One message of the sources: the files it stands in, and what they tell translators about it."""

    files: set[str] = field(default_factory=set)
    comments: list[str] = field(default_factory=list)


def messages_of_template(text: str) -> Iterator[tuple[Key, str]]:
    """Each translation of a template, without a comment. Django turns the tags into calls; those are read here."""
    for name, written in _CALL.findall(templatize(text)):
        strings = [str(ast.literal_eval(one.removeprefix("u"))) for one in re.findall(_STRING, written)]
        yield _key(name, strings), ""


def messages_of_python(text: str) -> Iterator[tuple[Key, str]]:
    """Each translation of a module, and the comment that begins with `Translators:` on the line above. Where a name
    stands in a text's place, the text is taken from where it is marked itself (gettext_noop)."""
    lines = ["", *text.splitlines()]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and (name := function(node)) in FUNCTIONS:
            wanted = FUNCTIONS[name] + ("pgettext" in name)
            strings = [one for arg in node.args[:wanted] if (one := _literal(arg))]
            if len(strings) == wanted:
                above = lines[node.lineno - 1].strip()
                yield _key(name, strings), above.removeprefix("# ") if above.startswith(_COMMENT) else ""


def _literal(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def function(node: ast.Call) -> str:
    """The name of a called function, without what says when it is translated."""
    name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    return name.removesuffix("_lazy").removesuffix("_noop")


def _key(name: str, strings: list[str]) -> Key:
    context = strings[0] if "pgettext" in name else ""
    texts = strings[1:] if "pgettext" in name else strings
    return context, texts[0] if FUNCTIONS[name] == 1 else (texts[0], texts[1])


def sources(root: Path = ROOT) -> Iterator[Path]:
    yield from sorted((root / "templates").rglob("*.html"))
    for package in CODE:
        yield from sorted(path for path in (root / package).rglob("*.py") if "migrations" not in path.parts)


def extract(root: Path = ROOT) -> dict[Key, Found]:
    """Every message of templates and Python, with its files."""
    found: dict[Key, Found] = {}
    for path in sources(root):
        read_from = messages_of_template if path.suffix == ".html" else messages_of_python
        for key, comment in read_from(path.read_text()):
            one = _entry(found, key)
            one.files.add(str(path.relative_to(root)))
            if comment and comment not in one.comments:
                one.comments.append(comment)
    return found


def _entry(found: dict[Key, Found], key: Key) -> Found:
    """gettext knows a message by its singular: one with a plural takes the one without in."""
    context, said = key
    if isinstance(said, str):
        counted = next((k for k in found if k[0] == context and isinstance(k[1], tuple) and k[1][0] == said), None)
        return found.setdefault(counted or key, Found())
    alone = found.pop((context, said[0]), Found())
    return found.setdefault(key, alone)


def catalogue(language: str, found: dict[Key, Found], known: Catalog | None) -> Catalog:
    """The messages that were found, each with what `known` says for it to the letter."""
    made = Catalog(locale=language, fuzzy=False)
    made.mime_headers = [("Plural-Forms", PLURALS[language])]
    for (context, said), one in sorted(found.items(), key=_place):
        old = known.get(said, context or None) if known else None
        is_same = old is not None and not old.fuzzy and _said(old) == said
        made.add(
            said,
            string=old.string if old and is_same else None,
            locations=[(name, 0) for name in sorted(one.files)],
            auto_comments=one.comments,
            user_comments=old.user_comments if old else (),
            context=context or None,
        )
    return made


def _place(item: tuple[Key, Found]) -> tuple[str, str, str]:
    """Messages of one file stand together; a message of several with the first."""
    (context, said), one = item
    return min(one.files), said if isinstance(said, str) else said[0], context


def _said(message: Message) -> Id:
    return message.id if isinstance(message.id, str) else (message.id[0], message.id[1])


def read(path: Path, language: str) -> Catalog | None:
    if not path.exists():
        return None
    with path.open("rb") as file:
        return read_po(file, locale=language, abort_invalid=True)


def as_po(language: str, made: Catalog) -> bytes:
    """The catalogue as text, with no more of a header than programs need."""
    out = BytesIO()
    head = {
        "Language": language,
        "MIME-Version": "1.0",
        "Content-Type": "text/plain; charset=UTF-8",
        "Content-Transfer-Encoding": "8bit",
        "Plural-Forms": PLURALS[language],
    }
    lines = "".join(f'"{name}: {value}\\n"\n' for name, value in head.items())
    out.write(f'msgid ""\nmsgstr ""\n{lines}\n'.encode())
    write_po(out, made, width=110, omit_header=True, include_lineno=False)
    return out.getvalue().rstrip(b"\n") + b"\n"


def _strings(message: Message) -> tuple[str, ...]:
    return (message.string,) if isinstance(message.string, str) else tuple(message.string or ())


def is_translated(message: Message) -> bool:
    return bool(strings := _strings(message)) and all(strings) and not message.fuzzy


def as_mo(language: str, made: Catalog) -> bytes:
    """GNU gettext's binary form, without a table of hashes: header, lengths and offsets, texts in their order."""
    head = f"Language: {language}\nContent-Type: text/plain; charset=UTF-8\nPlural-Forms: {PLURALS[language]}\n"
    texts = {b"": head.encode()}
    for message in made:
        if message.id and is_translated(message):
            said = _said(message)
            key = said if isinstance(said, str) else "\0".join(said)
            known_by = f"{message.context}\4{key}" if message.context else key
            texts[known_by.encode()] = "\0".join(_strings(message)).encode()
    return _pack(sorted(texts.items()))


def _pack(pairs: list[tuple[bytes, bytes]]) -> bytes:
    count, begin = len(pairs), 28 + 16 * len(pairs)
    tables, body = [], b""
    for texts in zip(*pairs, strict=True):
        for text in texts:
            tables.append(struct.pack("<II", len(text), begin + len(body)))
            body += text + b"\0"
    return struct.pack("<7I", 0x950412DE, 0, count, 28, 28 + 8 * count, 0, 0) + b"".join(tables) + body


_PLACE = re.compile(r"%\((\w+)\)[a-z]|(?<!%)%[sd]|\{\w*\}")
_TAG = re.compile(r"<[^>]+>")
_SAME = re.compile(r"<(code|kbd)[^>]*>(.*?)</\1>", re.DOTALL)
_ENDS = re.compile(r"\A(\s*).*?(\s*)\Z", re.DOTALL)


def misfits(message: Message) -> Iterator[str]:
    """What of a translation does not fit its message: places to fill in, tags, code and keys, blanks at the ends, and
    characters that would end an attribute or begin a tag."""
    for said, form in _pairs(message):
        told = f"{said!r} → {form!r}"
        if Counter(_places(said)) != Counter(_places(form)):
            yield f"places to fill in differ: {told}"
        if Counter(_TAG.findall(said)) != Counter(_TAG.findall(form)):
            yield f"tags differ: {told}"
        if sorted(_SAME.findall(said)) != sorted(_SAME.findall(form)):
            yield f"code or keys differ: {told}"
        if ("%%" in said) != ("%%" in form):
            yield f"per cent signs differ: {told}"
        if _ENDS.findall(said) != _ENDS.findall(form):
            yield f"blanks at the ends differ: {told}"
        if unwanted := {one for one in '"<>&' if one in _TAG.sub("", form) and one not in _TAG.sub("", said)}:
            yield f"{' '.join(sorted(unwanted))} is not in the message: {told}"


def _places(text: str) -> list[str]:
    """Named places once each: a sentence may need a number twice. Those without a name by their count."""
    found = [match[0] for match in _PLACE.finditer(text)]
    return sorted({one for one in found if len(one) > 2}) + [one for one in found if len(one) <= 2]


def _pairs(message: Message) -> Iterator[tuple[str, str]]:
    """Each form that is there with the text it was made of: the plural, for all but the first of two forms. Where there
    are more, the first is also for 21 and 31."""
    forms = _strings(message)
    for index, form in enumerate(forms):
        if form:
            is_plural = not isinstance(message.id, str) and (index > 0 or len(forms) != 2)
            yield message.id if isinstance(message.id, str) else message.id[is_plural], form


def paths(language: str, folder: Path = LOCALE) -> tuple[Path, Path]:
    folder = folder / language / "LC_MESSAGES"
    return folder / "django.po", folder / "django.mo"


@contextmanager
def alone() -> Iterator[None]:
    """One at a time: several people translate."""
    with Path(__file__).open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def update(languages: Iterable[str] = PLURALS) -> None:
    """Take what the sources say into each catalogue, and compile it."""
    found = extract()
    for language in languages:
        _write(language, catalogue(language, found, read(paths(language)[0], language)))


def _write(language: str, made: Catalog) -> None:
    po, mo = paths(language)
    po.parent.mkdir(parents=True, exist_ok=True)
    for path, text in ((po, as_po(language, made)), (mo, as_mo(language, made))):
        draft = path.with_suffix(".draft")
        draft.write_bytes(text)
        draft.replace(path)
    missing = sum(not is_translated(message) for message in made if message.id)
    print(f"{language}: {len(made)} messages, {missing} to translate")


def missing(language: str) -> Iterator[str]:
    """What is to be translated, a JSON object a line: `string` is to be filled in, a list where there is a plural."""
    for message in read(paths(language)[0], language) or ():
        if message.id and not is_translated(message):
            said = _said(message)
            number = int(PLURALS[language].partition("nplurals=")[2][0])
            line: dict[str, object] = {
                "context": message.context or "",
                "id": said if isinstance(said, str) else said[0],
            }
            if not isinstance(said, str):
                line["plural"] = said[1]
            forms = "" if isinstance(said, str) else [""] * number
            yield json.dumps(
                line | {"files": [name for name, _ in message.locations], "string": forms}, ensure_ascii=False
            )


def fill(language: str, lines: Iterable[str]) -> list[str]:
    """Take translations in; the lines that were refused, each with why."""
    known = read(paths(language)[0], language)
    assert known is not None
    refused = []
    for line in filter(str.strip, lines):
        given = json.loads(line)
        message = known.get(given["id"], given.get("context") or None)
        string = given["string"] if isinstance(given["string"], str) else tuple(given["string"])
        if message is None or isinstance(message.id, str) != isinstance(string, str):
            refused.append(f"there is no such message: {line.strip()}")
            continue
        tried = Message(message.id, string=string, context=message.context)
        if not is_translated(tried) or (not isinstance(string, str) and len(string) != known.num_plurals):
            refused.append(f"a form is missing: {line.strip()}")
        elif found := list(misfits(tried)):
            refused += found
        else:
            message.string = string
    _write(language, known)
    return refused


def faults(languages: Iterable[str] = PLURALS) -> Iterator[str]:
    """What `update` would change, and what is not translated."""
    found = extract()
    for language in languages:
        po, mo = paths(language)
        if (known := read(po, language)) is None:
            yield f"{po} is not there."
            continue
        if as_po(language, catalogue(language, found, known)) != po.read_bytes():
            yield f"{po} is out of date. Run `make messages`."
        if not mo.exists() or as_mo(language, known) != mo.read_bytes():
            yield f"{mo} is out of date. Run `make messages`."
        if missing := [message.id for message in known if message.id and not is_translated(message)]:
            yield f"{po}: {len(missing)} to translate, such as {missing[0]!r}."


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; end with 1 if something is to be done")
    parser.add_argument("--missing", metavar="LANGUAGE", choices=PLURALS, help="print what is to be translated")
    parser.add_argument("--fill", metavar=("LANGUAGE", "FILE"), nargs=2, help="take translations in")
    given = parser.parse_args()
    if given.missing:
        print("\n".join(missing(given.missing)))
        return 0
    if given.check:
        found = list(faults())
        print("\n".join(found) or "All messages are translated.")
        return 1 if found else 0
    with alone():
        if not given.fill:
            update()
            return 0
        refused = fill(given.fill[0], Path(given.fill[1]).read_text().splitlines())
    print("\n".join(refused))
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
