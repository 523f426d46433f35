"""The beginnings of columns of evidence: what a page can hold of them."""

from typing import Any

from django.db.models import Field, Func, IntegerField, Model
from django.db.models.functions import Left


class Start(Left):
    """The first characters of a column of evidence, masked for whoever reads as the whole of it would be."""

    def __init__(self, model: type[Model], name: str, length: int) -> None:
        field: Field[Any, Any] = model._meta.get_field(name)  # type: ignore[assignment]
        super().__init__(name, length, output_field=field)


class Octets(Func):
    """How many bytes a text takes."""

    function = "octet_length"
    output_field = IntegerField()
