"""Showing what models, tools and people wrote: always inert, always as it is.

Data reaches HTML through `format_html` and autoescaping alone; nothing here marks data as safe.
"""

import datetime as dt
import re
from typing import Any
from urllib.parse import quote, urlencode

from django import template
from django.utils import formats, timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.timesince import timesince
from django.utils.translation import gettext as _
from django.utils.translation import ngettext, pgettext_lazy

from engine.visible import segments
from engine.visible import visible as visible_text
from quality.languages import number
from quality.models import Label
from quality.review import jsonview

register = template.Library()
OPEN_DEPTH = 2
_UNNAMEABLE = re.compile("[\x00\ud800-\udfff]")  # what neither an address nor UTF-8 carries


def _inert(text: str) -> SafeString:
    return format_html_join(
        "",
        "{}",
        (
            (format_html('<span class="hidden-char" title="{}">{}</span>', mark, shown) if mark else shown,)
            for shown, mark in segments(text)
        ),
    )


@register.filter
def inert(value: Any) -> SafeString:
    """Text of others, hidden characters shown as marks, isolated from the direction of the text around it."""
    return format_html("<bdi>{}</bdi>", _inert("" if value is None else str(value)))


_ROLES = {
    "system": pgettext_lazy("role of a message", "system"),
    "developer": pgettext_lazy("role of a message", "developer"),
    "user": pgettext_lazy("role of a message", "user"),
    "assistant": pgettext_lazy("role of a message", "assistant"),
    "tool": pgettext_lazy("role of a message", "tool"),
}


@register.filter
def role_word(role: str) -> str:
    """Who said a message; a role that no protocol has is told as it was written."""
    return str(_ROLES[role]) if role in _ROLES else inert(role)


@register.filter
def visible(value: Any) -> str:
    """The same as plain text, for titles and attributes."""
    return visible_text("" if value is None else str(value))


@register.filter
def preview(args: str | None) -> SafeString:
    """One line of up to four `key: value` pairs of arguments (JSON text, may be cut)."""
    pairs = jsonview.preview(args)
    return format_html_join(
        " ",
        '<span class="pair">{}<bdi>{}</bdi></span>',
        ((format_html("<b><bdi>{}</bdi></b> ", _inert(key)) if key else "", _inert(value)) for key, value in pairs),
    )


@register.simple_tag
def json_tree(node: jsonview.Node, branch: str = "", pointer: str = "") -> SafeString:
    """A value as nested lists; containers past the second level are folded. With a `branch`, the address from which
    parts come, each value says where it is (`pointer` of the whole), and what is left out can be loaded."""
    return _tree(node, 0, branch, pointer if branch else None)


@register.simple_tag
def json_members(node: jsonview.Node, branch: str, pointer: str) -> SafeString:
    """The members of a container alone, to stand in place of those that were left out."""
    return _members_of(node, 0, branch, pointer)


@register.simple_tag
def node_at(pointer: str) -> SafeString:
    """The attribute that says where a value is."""
    return _at(pointer)


def _at(pointer: str | None) -> SafeString:
    """The place as addresses spell it, for a key may hide something; nothing for one that no address can name."""
    if pointer is None or _UNNAMEABLE.search(pointer):
        return format_html("{}", "")
    return format_html(' data-at="{}" tabindex="-1"', quote(pointer, safe="/~"))


def _below(pointer: str | None, key: str) -> str | None:
    return None if pointer is None else jsonview.pointer(pointer, key)


def _tree(node: jsonview.Node, depth: int, branch: str, pointer: str | None) -> SafeString:
    if node.is_container:
        return _container(node, depth, branch, pointer)
    if node.kind != "string":
        return format_html('<span class="json-{}">{}</span>', node.kind, _inert(node.text))
    text = format_html('<span class="json-string" dir="auto">{}</span>', _inert(node.text))
    if not node.hidden:
        return text
    return format_html('{} <span class="cut">{}</span>', text, _load(_characters(node.hidden), branch, pointer, "text"))


def _load(words: str, branch: str, pointer: str | None, how: str, start: int = 0) -> SafeString:
    """What is left out, and the way to it where there is one."""
    if pointer is None or _UNNAMEABLE.search(pointer):
        return format_html("{}", words)
    query = urlencode({"at": pointer, **({"from": start} if start else {})})
    return format_html('{} <a href="{}?{}" data-load="{}">{}</a>', words, branch, query, how, _("Load"))


def _container(node: jsonview.Node, depth: int, branch: str, pointer: str | None) -> SafeString:
    is_object = node.kind == "object"
    if not node.size:
        return format_html('<span class="json-literal">{}</span>', "{ }" if is_object else "[ ]")
    listed = format_html('<ul class="json">{}</ul>', _members_of(node, depth, branch, pointer))
    if depth < OPEN_DEPTH and node.size <= 20:
        return listed
    count = _members(node.size) if is_object else _items(node.size)
    return format_html('<details class="json-fold"><summary>{}</summary>{}</details>', count, listed)


def _members_of(node: jsonview.Node, depth: int, branch: str, pointer: str | None) -> SafeString:
    items = format_html_join(
        "",
        '<li{}><span class="json-key"><bdi>{}</bdi></span> {}</li>',
        (
            (_at(_below(pointer, key)), _inert(key), _tree(child, depth + 1, branch, _below(pointer, key)))
            for key, child in node.children
        ),
    )
    if not node.hidden:
        return items
    words = _("… %(n)s more") % {"n": number(node.hidden)}
    return format_html(
        '{}<li class="cut">{}</li>', items, _load(words, branch, pointer, "members", start=node.next_start)
    )


def _characters(n: int) -> str:
    return ngettext("… %(n)s more characters", "… %(n)s more characters", n) % {"n": number(n)}


def _members(n: int) -> str:
    return ngettext("%(n)s member", "%(n)s members", n) % {"n": number(n)}


def _items(n: int) -> str:
    return ngettext("%(n)s item", "%(n)s items", n) % {"n": number(n)}


@register.filter
def label_name(value: str | None) -> str:
    """`wrong_tool` → Wrong tool."""
    return str(Label(value).label) if value in Label.values else (value or _("Unlabelled"))


@register.filter
def duration(ms: int | None) -> str:
    """Milliseconds in the unit a person would use."""
    if ms is None:
        return ""
    if ms < 1_000:
        return _("%(n)s ms") % {"n": ms}
    seconds = ms / 1_000
    if seconds < 60:
        return _("%(n)s s") % {"n": number(seconds, 1)}
    return _("%(min)s min %(s)s s") % {"min": number(seconds // 60), "s": int(seconds % 60)}


@register.filter
def size(count: int | None) -> str:
    """Bytes in the unit a person would use; the exact number belongs beside it where it matters."""
    value = float(count or 0)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{number(value, 0 if value.is_integer() else 1)} {unit}"
        value /= 1024
    return f"{number(value, 2)} GiB"


@register.filter
def share(part: int, whole: int) -> str:
    """`3|share:8` → 38 %; a dash where there is nothing to share."""
    if not whole:
        return "–"
    percent = 100 * part / whole
    return f"{number(percent, 1 if 0 < percent < 10 or 99 < percent < 100 else 0)} %"


@register.simple_tag
def moment(value: dt.datetime | None, recorded: bool = True) -> SafeString:
    """A time in the viewer's zone; on hover the exact one with its zone, and how long ago. Told where the source gave
    none."""
    if value is None:
        return format_html('<span class="muted">{}</span>', "–")
    local = timezone.localtime(value)
    if not recorded:
        return format_html('<span class="muted" title="{}">{}</span>', _("The source gave no time."), _("no time"))
    is_of_year = local.year == timezone.localtime().year
    day = formats.date_format(local, "MONTH_DAY_FORMAT" if is_of_year else "DATE_FORMAT")
    shown = f"{day} {formats.time_format(local, 'TIME_FORMAT')}"
    return format_html(
        '<time datetime="{}" title="{} ({}), {}">{}</time>',
        value.isoformat(),
        local.strftime("%Y-%m-%d %H:%M:%S %z"),
        timezone.get_current_timezone_name(),
        _ago(value),
        shown,
    )


def _ago(value: dt.datetime) -> str:
    """How long ago that was, or is to come, in the largest unit: 3 hours ago."""
    now = timezone.now()
    if value > now:
        return _("in %(time)s") % {"time": timesince(now, value, depth=1)}
    return _("%(time)s ago") % {"time": timesince(value, now, depth=1)}
