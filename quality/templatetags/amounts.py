"""Amounts of money as people write them."""

from decimal import Decimal

from django import template

register = template.Library()


@register.filter
def plain(amount: Decimal | None) -> str:
    """`5000.00000000` → 5000, never 5E+3; all digits that count stay."""
    if amount is None:
        return ""
    text = f"{amount:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
