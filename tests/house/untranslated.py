"""Finds what is said to people without asking the catalogue: English there would stay English everywhere."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser

from django.template.base import Lexer, Token, TokenType

# Attributes that are read by, or to, people. `value` is only on buttons without a text of their own.
SAID = {"title", "placeholder", "aria-label", "alt", "aria-description", "aria-roledescription", "label", "hx-confirm"}
# What stands in these is the same in each language.
SAME = {"code", "kbd", "pre", "samp", "script", "style", "svg:text"}
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
# Names, and words that are the same in each language. Everything else is said through the catalogue.
NAMES = (
    "Quality Lab",
    "OpenAI",
    "Anthropic",
    "JSON Lines",
    "JSONL",
    "JSON",
    "CSV",
    "HTML",
    "HTTP",
    "URL",
    "API",
    "OTLP",
    "Markdown",
    "PostgreSQL",
    "WebSocket",
    "KiB",
    "MiB",
    "GiB",
)
_NAMES = re.compile("|".join(rf"(?<![A-Za-z]){re.escape(name)}(?![A-Za-z])" for name in NAMES))
_WORD = re.compile(r"[^\W\d_]{2,}")
_LITERAL = r"""(?:"([^"]*)"|'([^']*)')"""
_MARKED = re.compile(rf"_\({_LITERAL}\)")
_FILTERED = re.compile(rf"\|(?:default|default_if_none|yesno|add|join|pluralize):{_LITERAL}")
_HANDED = re.compile(rf"(?<=\s)\w+={_LITERAL}")
_PLURAL = re.compile(r"\|pluralize\b")


@dataclass(frozen=True)
class Unsaid:
    """A text that is not asked of the catalogue, and the line it is on."""

    line: int
    text: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}"


def untranslated(source: str) -> list[Unsaid]:
    """Every such text of a template: text nodes, attributes that are read out, and texts inside tags and filters."""
    tokens = Lexer(source).tokenize()
    return sorted({*_in_html(_blanked(tokens)), *_in_tags(tokens)}, key=lambda one: (one.line, one.text))


def is_words(text: str) -> bool:
    return bool(_WORD.search(_NAMES.sub("", text)))


def _blanked(tokens: list[Token]) -> str:
    """The HTML alone, each tag of the template and all that is translated as blanks, line by line."""
    out: list[str] = []
    ends = ""
    for token in tokens:
        line_breaks = "\n" * token.contents.count("\n")
        if token.token_type == TokenType.TEXT:
            out.append(line_breaks if ends else token.contents)
            continue
        if token.token_type == TokenType.BLOCK:
            name, *given = token.contents.split()
            is_class = name == "block" and given[:1] == ["page_class"]  # of an element, never read
            if (name in ("blocktranslate", "blocktrans", "comment", "verbatim") or is_class) and not ends:
                ends = f"end{name}"
            elif name == ends:
                ends = ""
        out.append(" " + line_breaks)
    return "".join(out)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[tuple[str, bool]] = []  # element, and whether it is the same in each language
        self.found: list[Unsaid] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        is_same = tag in SAME or given.get("translate") == "no" or bool(self.open and self.open[-1][1])
        for name, value in attrs:
            if name in SAID and not is_same and is_words(value or ""):
                self.found.append(Unsaid(self.getpos()[0], f"{name}={value!r}"))
        if tag not in VOID:
            self.open.append((tag, is_same))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        # A template may open an element in one branch and another: what is closed is the nearest of that name.
        for index in range(len(self.open) - 1, -1, -1):
            if self.open[index][0] == tag:
                del self.open[index:]
                break

    def handle_data(self, data: str) -> None:
        if not (self.open and self.open[-1][1]) and is_words(data):
            self.found.append(Unsaid(self.getpos()[0], " ".join(data.split())))


def _in_html(html: str) -> Iterator[Unsaid]:
    reader = _Reader()
    reader.feed(html)
    reader.close()
    yield from reader.found


def _in_tags(tokens: list[Token]) -> Iterator[Unsaid]:
    for token in tokens:
        if token.token_type not in (TokenType.BLOCK, TokenType.VAR):
            continue
        inside = _MARKED.sub("", token.contents)
        name = inside.split()[0] if token.token_type == TokenType.BLOCK and inside.split() else ""
        if name in ("translate", "trans", "load", "comment"):
            continue
        if _PLURAL.search(inside):
            yield Unsaid(token.lineno, "pluralize: other languages have other plurals; use blocktranslate with count")
        for first, second in _FILTERED.findall(inside):
            if is_words(first or second):
                yield Unsaid(token.lineno, f"{first or second!r} in {{{{ … }}}}")
        for first, second in _HANDED.findall(inside) if name in ("include", "with", "blocktranslate") else ():
            if " " in (first or second) or (first or second)[:1].isupper():
                yield Unsaid(token.lineno, f"{first or second!r} in {{% {name} … %}}")


_MESSAGES = {"success", "info", "warning", "error"}
_LABELS = {"label", "help_text", "empty_label"}
_ERRORS = {"ValidationError", "PermissionDenied"}


def untranslated_in_python(source: str, *, is_page: bool) -> list[Unsaid]:
    """Texts of messages, errors and choices, and on pages the labels and helps of fields, that are plain strings."""
    found: set[Unsaid] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            found |= {one for said in _said_by(node, is_page=is_page) for one in _plain(said)}
        elif isinstance(node, ast.ClassDef) and any(ast.unparse(base).endswith("TextChoices") for base in node.bases):
            for line in node.body:
                if isinstance(line, ast.Assign) and isinstance(line.value, ast.Tuple):
                    found |= set(_plain(line.value.elts[-1]))
    return sorted(found, key=lambda one: (one.line, one.text))


def _said_by(node: ast.Call, *, is_page: bool) -> Iterator[ast.expr]:
    called = ast.unparse(node.func)
    name = called.rpartition(".")[2]
    if called.startswith("messages.") and name in _MESSAGES:
        yield from node.args[1:2]
    elif name in _ERRORS:
        yield from node.args[:1]
    elif name == "add_error":
        yield from node.args[1:2]
    if is_page:
        yield from (keyword.value for keyword in node.keywords if keyword.arg in _LABELS)


def _plain(said: ast.expr) -> Iterator[Unsaid]:
    """The strings that would be shown as they are, through all that they are put together of."""
    match said:
        case ast.Constant(value=str(text)) if is_words(text):
            yield Unsaid(said.lineno, repr(text))
        case ast.JoinedStr(values=parts) if any(isinstance(one, ast.Constant) and is_words(one.value) for one in parts):
            yield Unsaid(said.lineno, ast.unparse(said))
        case ast.Dict(values=values) | ast.List(elts=values) | ast.Tuple(elts=values):
            for value in values:
                yield from _plain(value)
        case ast.IfExp(body=first, orelse=second) | ast.BinOp(left=first, right=second):
            yield from _plain(first)
            yield from _plain(second)
        case ast.BoolOp(values=values):
            for value in values:
                yield from _plain(value)
        case ast.Call(func=ast.Attribute(value=ast.Constant() as text, attr="format" | "join")):
            yield from _plain(text)
