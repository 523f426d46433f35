"""Measures of agreement on pages: a figure, its interval, and why there is none."""

import datetime as dt

from django import template
from django.utils.translation import gettext as _

from quality.languages import number
from quality.review.agreement import Measure, Why
from quality.templatetags.replays import percent

register = template.Library()


@register.filter
def coefficient(measure: Measure) -> str:
    """Alpha or kappa: 0.61; a dash where it cannot be told."""
    return "–" if measure.value is None else _signed(measure.value)


@register.filter
def of_hundred(measure: Measure) -> str:
    """A share: 61 %; a dash where it cannot be told."""
    return percent(measure.value)


@register.filter
def coefficient_range(measure: Measure) -> str:
    """Its interval: 0.55 to 0.67; empty where there is none."""
    if measure.low is None or measure.high is None:
        return ""
    return _("%(low)s to %(high)s") % {"low": _signed(measure.low), "high": _signed(measure.high)}


@register.filter
def share_range(measure: Measure) -> str:
    """Its interval: 55 to 67 %; empty where there is none."""
    if measure.low is None or measure.high is None:
        return ""
    low, high = number(100 * measure.low), number(100 * measure.high)
    return _("%(low)s to %(high)s %%") % {"low": low, "high": high}


@register.filter
def why_not(measure: Measure) -> str:
    """Why there is no figure, or no interval; empty where there are both."""
    return {
        None: "",
        Why.NO_ITEMS: _("nothing to measure yet"),
        Why.ONE_ANSWER: _("only one answer was ever given: nothing is left to agree on beyond chance"),
        Why.ONE_ITEM: _("one call alone has no interval"),
        Why.ONE_SIDED: _("one of the two always says the same: this can be nothing but 0"),
    }[measure.why]


@register.filter
def on_axis(value: float | None) -> str:
    """A figure as a place on an axis from 0 to 1, in per cent of its length, as SVG spells it; below 0 is 0."""
    return f"{100 * min(1.0, max(0.0, value or 0.0)):.2f}%"


@register.filter
def hours(span: dt.timedelta) -> str:
    """A span of work in hours and minutes, or in seconds where it is short."""
    seconds = round(span.total_seconds())
    if seconds < 60:
        return _("%(n)s s") % {"n": seconds}
    minutes = round(seconds / 60)
    if minutes < 60:
        return _("%(n)s min") % {"n": minutes}
    return _("%(h)s h %(min)s min") % {"h": number(minutes // 60), "min": minutes % 60}


def _signed(value: float) -> str:
    shown = number(abs(value), 2)
    return f"−{shown}" if round(value, 2) < 0 else shown
