"""Replays on pages: rates, money and times in few characters, and what a side is asked with."""

from decimal import Decimal

from django import template
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from quality.languages import number
from quality.models import ReplaySide
from quality.replay.sample_view import SOURCE_NAMES, VERDICTS

register = template.Library()
_UNITS = ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k"))
_STANDINGS = {
    "passed": gettext_lazy("passed"),
    "failed": gettext_lazy("failed"),
    "undecided": gettext_lazy("undecided"),
    "unknown": gettext_lazy("unknown"),
}


@register.filter
def percent(share: float | None) -> str:
    """`0.375` → 38 %; what is nearly all or nearly nothing keeps a digit, so that it does not read as that."""
    if share is None:
        return "–"
    value = 100 * share
    return f"{number(value, 1 if 0 < value < 1 or 99 < value < 100 else 0)} %"


@register.filter
def short(count: int | None) -> str:
    """`12345` → 12.3k."""
    value = count or 0
    for size, unit in _UNITS:
        if value >= size:
            tenths = round(10 * value / size)
            return number(tenths / 10, 0 if tenths % 10 == 0 else 1) + unit
    return str(value)


@register.filter
def money(cost: float | None) -> str:
    """An amount in the currency of the endpoints' prices; small ones keep two digits that count."""
    if not cost:
        return "0" if cost == 0 else "–"
    if cost >= 1:
        return number(cost, 2)
    return _spelled(f"{cost:.2g}") if cost >= 0.0001 else f"< {number(0.0001, 4)}"


@register.filter
def took(seconds: float | None) -> str:
    """Seconds in the unit a person would use."""
    if seconds is None:
        return "–"
    if seconds < 60:
        return _("%(n)s s") % {"n": number(seconds, 1 if seconds < 10 else 0)}
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return _("%(h)s h %(min)s min") % {"h": number(hours), "min": minutes}
    return _("%(min)s min %(s)s s") % {"min": minutes, "s": rest}


@register.filter
def p_value(p: float | None) -> str:
    return "–" if p is None else _spelled(f"{p:.3g}")


@register.filter
def points(difference: float) -> str:
    """A difference of two shares, in points of per cent with its sign."""
    mark = "−" if difference < 0 else "+"
    return _("%(n)s points") % {"n": mark + number(abs(100 * difference), 1)}


@register.filter
def sign(verdict: str) -> str:
    """A verdict as one character."""
    return VERDICTS.get(verdict, ("?", verdict))[0]


@register.filter
def verdict_word(verdict: str) -> str:
    return str(VERDICTS.get(verdict, ("?", verdict))[1])


@register.filter
def standing_word(standing: str) -> str:
    """How a case stands, in a word."""
    return str(_STANDINGS.get(standing, standing))


@register.filter
def source_word(source: str) -> str:
    """Where a result came from, in a word."""
    return str(SOURCE_NAMES.get(source, source))


@register.filter
def prompt_word(side: ReplaySide) -> str:
    if side.style_id:
        return f"{side.style_id}@{side.style_version}" if side.style_version else side.style_id
    return _("recorded prompt") if side.system_prompt is None else _("another prompt")


def _spelled(figure: str) -> str:
    """A figure rounded to digits that count, with the language's own point; `1e-05` stays as it is."""
    digits = len(figure.partition(".")[2])
    return figure if "e" in figure else number(Decimal(figure), digits)


@register.filter
def tools_word(side: ReplaySide) -> str:
    if side.tools_from == ReplaySide.Tools.RECORDED:
        return _("recorded tools")
    return _("today's tools") if side.tools_from == ReplaySide.Tools.CURRENT else _("tools of a toolset")
