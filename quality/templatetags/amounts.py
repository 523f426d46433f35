"""Amounts of money as people write them."""

from decimal import Decimal

from django import template
from django.utils import formats

register = template.Library()


@register.filter
def plain(amount: Decimal | None) -> str:
    """`5000.00000000` → 5000, never 5E+3; all digits that count stay, with the language's own point."""
    if amount is None:
        return ""
    text = f"{amount:f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return text.replace(".", formats.get_format("DECIMAL_SEPARATOR"))
