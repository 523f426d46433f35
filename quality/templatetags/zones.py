"""Time zones to choose from."""

from django import template

from quality.middleware import zone_choices

register = template.Library()


@register.simple_tag
def zone_names() -> list[str]:
    return zone_choices()
