"""Rules of hints in templates."""

from django import template

from quality.review.hints import BY_NAME

register = template.Library()


@register.filter
def hint_word(rule: str) -> str:
    """The word for a rule; its name, if it is one of an older version."""
    return BY_NAME[rule].word if rule in BY_NAME else rule
