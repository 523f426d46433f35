"""What the tables of evidence share."""

from typing import Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.translation import gettext_lazy

from quality.stored import unknown
from tenants.masking import reading
from tenants.masking.reading import Reading, UnknownMark


class Masked:
    """Of a column whose text may tell of people: what comes out is masked for whoever reads (tenants.masking.reading),
    and what they write has its marks put back. Where nobody reads it is as it is kept."""

    def masked(self, text: str, by: Reading, *, cut: bool = False) -> str:
        """As it is shown to somebody; `cut`: the beginning of it. That of JSON is told by itself."""
        raise NotImplementedError

    def put_back(self, text: str) -> str:
        """Raises UnknownMark."""
        return reading.put_back(text)

    def from_db_value(self, value: Any, expression: Any, connection: BaseDatabaseWrapper) -> Any:
        reader = reading.current()
        return value if reader is None or not isinstance(value, str) else self.masked(value, reader)

    def get_prep_value(self, value: Any) -> Any:
        prepared = super().get_prep_value(value)  # type: ignore[misc]
        if reading.current() is None or not isinstance(prepared, str):
            return prepared
        try:
            return self.put_back(prepared)
        except UnknownMark as error:
            raise unknown(error) from error


class PayloadField(models.TextField):
    """Text of any size. Lists never read such a column."""


class EvidenceField(Masked, PayloadField):
    """JSON as text, spelled as it was received: key order, number spelling, real UTF-8; NUL and lone surrogates stay
    JSON escapes. A body that is not JSON is kept as a JSON string.

    `is_data`: arguments or a result, where rules of masking go by each path and name; else a conversation or a record
    of ours, where they count within the data that it holds.
    """

    def __init__(self, *args: Any, is_data: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.is_data = is_data

    def masked(self, text: str, by: Reading, *, cut: bool = False) -> str:
        return by.document(text) if self.is_data else by.structure(text)


class DefinitionField(PayloadField):
    """JSON text of what was offered to a model, spelled as it was received. It tells of tools, not of people."""


class ProseField(Masked, models.TextField):
    """Text that may quote evidence or name a person: an error, a note, a contact."""

    def put_back(self, text: str) -> str:
        return reading.put_back_prose(text)

    def masked(self, text: str, by: Reading, *, cut: bool = False) -> str:
        return by.prose(text, cut=cut)


class SentenceField(ProseField):
    """A sentence of ours that quotes evidence."""

    def masked(self, text: str, by: Reading, *, cut: bool = False) -> str:
        return by.sentence(text, cut=cut)


class DerivedField(Masked, models.JSONField):
    """Values made of evidence. Only workers write them, who read it as it is kept."""

    def masked(self, text: str, by: Reading, *, cut: bool = False) -> str:
        return by.structure(text)

    def from_db_value(self, value: Any, expression: Any, connection: BaseDatabaseWrapper) -> Any:
        masked = super().from_db_value(value, expression, connection)
        return models.JSONField.from_db_value(self, masked, expression, connection)


class Label(models.TextChoices):
    """What a reviewer says of a call. The first key press is the first label."""

    GOOD_REPLY = "good_reply", gettext_lazy("Good reply")
    WRONG_TOOL = "wrong_tool", gettext_lazy("Wrong tool")
    MISSING_TOOL = "missing_tool", gettext_lazy("Missing tool")
    BAD_ARGS = "bad_args", gettext_lazy("Bad arguments")
    OTHER = "other", gettext_lazy("Other")


ACTIONABLE = (Label.WRONG_TOOL, Label.MISSING_TOOL, Label.BAD_ARGS)
