"""How measures are written on pages."""

import datetime as dt

import pytest
from django.utils import translation

from quality.review.agreement import Measure, Why
from quality.templatetags import measures

FULL = Measure(value=-0.004, n=50, low=-0.214, high=0.5)


def test_a_figure_and_its_interval():
    assert measures.coefficient(FULL) == "0.00", "no minus before nothing"
    assert measures.coefficient_range(FULL) == "−0.21 to 0.50"
    assert measures.of_hundred(Measure(value=0.995, n=9)) == "99.5 %"
    assert measures.share_range(FULL) == "-21 to 50 %"
    assert measures.why_not(FULL) == ""
    with translation.override("it"):
        assert measures.coefficient_range(FULL).startswith("da −0,21 ")


@pytest.mark.parametrize("why", Why)
def test_what_is_missing_has_its_reason(why):
    missing = Measure(value=None, n=0, why=why)
    assert (measures.coefficient(missing), measures.of_hundred(missing)) == ("–", "–")
    assert (measures.coefficient_range(missing), measures.share_range(missing)) == ("", "")
    assert len(measures.why_not(missing)) > 10


@pytest.mark.parametrize(("value", "place"), [(None, "0.00%"), (-0.5, "0.00%"), (0.125, "12.50%"), (1.2, "100.00%")])
def test_a_place_on_the_axis_is_spelled_for_svg_in_every_language(value, place):
    with translation.override("ru"):
        assert measures.on_axis(value) == place


@pytest.mark.parametrize(
    ("span", "told"),
    [
        (dt.timedelta(seconds=59), "59 s"),
        (dt.timedelta(seconds=89), "1 min"),
        (dt.timedelta(hours=1, minutes=5), "1 h 5 min"),
    ],
)
def test_spans_of_work(span, told):
    assert measures.hours(span) == told
