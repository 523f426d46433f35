"""Replays on pages: rates, money and times in few characters, and what a side is asked with."""

from django import template

from quality.models import ReplaySide
from quality.replay.sample_view import VERDICTS

register = template.Library()
_UNITS = ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k"))


@register.filter
def percent(share: float | None) -> str:
    """`0.375` → 38 %; what is nearly all or nearly nothing keeps a digit, so that it does not read as that."""
    if share is None:
        return "–"
    value = 100 * share
    return f"{value:.1f} %" if 0 < value < 1 or 99 < value < 100 else f"{value:.0f} %"


@register.filter
def short(count: int | None) -> str:
    """`12345` → 12.3k."""
    value = count or 0
    for size, unit in _UNITS:
        if value >= size:
            return f"{value / size:.1f}".removesuffix(".0") + unit
    return str(value)


@register.filter
def money(cost: float | None) -> str:
    """An amount in the currency of the endpoints' prices; small ones keep two digits that count."""
    if not cost:
        return "0" if cost == 0 else "–"
    return f"{cost:,.2f}" if cost >= 1 else f"{cost:.2g}" if cost >= 0.0001 else "< 0.0001"


@register.filter
def took(seconds: float | None) -> str:
    """Seconds in the unit a person would use."""
    if seconds is None:
        return "–"
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


@register.filter
def p_value(p: float | None) -> str:
    return "–" if p is None else f"{p:.3g}"


@register.filter
def points(difference: float) -> str:
    """A difference of two shares, in points of per cent with its sign."""
    return f"{100 * difference:+.1f} points".replace("-", "−")


@register.filter
def sign(verdict: str) -> str:
    """A verdict as one character."""
    return VERDICTS.get(verdict, ("?", verdict))[0]


@register.filter
def verdict_word(verdict: str) -> str:
    return VERDICTS.get(verdict, ("?", verdict))[1]


@register.filter
def prompt_word(side: ReplaySide) -> str:
    if side.style_id:
        return f"{side.style_id}@{side.style_version}" if side.style_version else side.style_id
    return "recorded prompt" if side.system_prompt is None else "another prompt"


@register.filter
def tools_word(side: ReplaySide) -> str:
    if side.tools_from == ReplaySide.Tools.RECORDED:
        return "recorded tools"
    return "today's tools" if side.tools_from == ReplaySide.Tools.CURRENT else "tools of a toolset"
