"""Proposals on pages."""

from django import template
from django.conf import settings
from django.utils.translation import get_language

from quality.improve.groups import GroupKey
from quality.models import Proposal

register = template.Library()


@register.filter
def title_of(proposal: Proposal) -> str:
    """What a proposal is about in the reader's language; what is kept is English."""
    if get_language() == settings.LANGUAGE_CODE:
        return proposal.title
    return GroupKey.of(proposal).title
