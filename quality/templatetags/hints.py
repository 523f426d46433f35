"""Rules of hints in templates."""

from collections.abc import Collection, Sequence

from django import template

from quality.calls import HintRow
from quality.review.hints import BY_NAME

register = template.Library()


@register.filter
def hint_word(rule: str) -> str:
    """The word for a rule; its name, if it is one of an older version."""
    return str(BY_NAME[rule].word) if rule in BY_NAME else rule


@register.filter
def asked_first(hints: Sequence[HintRow], asked: Collection[str]) -> list[HintRow]:
    """The hints that a list is narrowed to before the others."""
    return sorted(hints, key=lambda hint: hint.rule not in asked)
