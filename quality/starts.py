"""The beginnings of columns of evidence: what a page can hold of them."""

from typing import Any

from django.db.models import Field, Func, IntegerField, Model
from django.db.models.functions import Left

from tenants.masking import reading


class Start(Left):
    """The first characters of a column of evidence, masked for whoever reads as the whole of it would be."""

    def __init__(self, model: type[Model], name: str, length: int) -> None:
        super().__init__(name, length, output_field=_column(model, name))
        self._of = (model, name, length)

    def get_db_converters(self, connection: Any) -> list[Any]:
        return [lambda value, expression, connection: start_as_read(*self._of, value)]


def start_as_read(model: type[Model], name: str, length: int, text: str | None) -> str | None:
    """The same of what a query of ours took from a column: its first characters, `length` of them if there are more."""
    reader = reading.current()
    if reader is None or text is None:
        return text
    return str(_column(model, name).masked(text, reader, cut=len(text) >= length))


def _column(model: type[Model], name: str) -> Any:
    field: Field[Any, Any] = model._meta.get_field(name)  # type: ignore[assignment]
    return field


class Octets(Func):
    """How many bytes a text takes."""

    function = "octet_length"
    output_field = IntegerField()
