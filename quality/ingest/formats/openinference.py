"""Spans with OpenInference's attributes: Phoenix's span listing (pages, or single spans), OTLP in JSON form, or the
SDK's own JSON. Spans are read as in `otel_genai`."""

from collections.abc import Iterable, Iterator

from quality.ingest import conventions
from quality.ingest.gathering import gather
from quality.ingest.items import Checked, Parsed
from quality.ingest.jsontext import Node
from quality.ingest.reader import ItemError

NAME = "openinference"
LABEL = "OpenInference (Phoenix)"


def recognise(root: Node) -> bool:
    return conventions.source_of(root.value) == NAME


def read(items: Iterable[Checked | ItemError]) -> Iterator[Parsed | ItemError]:
    return gather(
        items,
        lambda root: conventions.of_document(root.value),
        is_last=lambda root: conventions.is_last_page(root.value),
    )
