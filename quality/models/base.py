"""What the tables of evidence share."""

from django.db import models
from django.utils.translation import gettext_lazy as _


class EvidenceField(models.TextField):
    """JSON as text, spelled as it was received: key order, number spelling, real UTF-8; NUL and lone surrogates stay
    JSON escapes. A body that is not JSON is kept as a JSON string. Lists never read such a column."""


class Label(models.TextChoices):
    """What a reviewer says of a call. The first key press is the first label."""

    GOOD_REPLY = "good_reply", _("Good reply")
    WRONG_TOOL = "wrong_tool", _("Wrong tool")
    MISSING_TOOL = "missing_tool", _("Missing tool")
    BAD_ARGS = "bad_args", _("Bad arguments")
    OTHER = "other", _("Other")


ACTIONABLE = (Label.WRONG_TOOL, Label.MISSING_TOOL, Label.BAD_ARGS)
