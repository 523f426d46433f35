"""OpenTelemetry spans with `gen_ai.*` attributes: OTLP in JSON form (one request, or one a line, as the collector's
file exporter writes), or the SDK's own JSON.

Spans of one trace may be spread over items; see `gathering` for how far. A span that follows OpenInference is read as
such, whichever of the two formats the file was taken for."""

from collections.abc import Iterable, Iterator

from quality.ingest import conventions
from quality.ingest.gathering import gather
from quality.ingest.items import Checked, Parsed
from quality.ingest.jsontext import Node
from quality.ingest.reader import ItemError

NAME = "otel_genai"
LABEL = "OpenTelemetry GenAI"


def recognise(root: Node) -> bool:
    return conventions.source_of(root.value) == NAME


def read(items: Iterable[Checked | ItemError]) -> Iterator[Parsed | ItemError]:
    return gather(
        items,
        lambda root: conventions.of_document(root.value),
        is_last=lambda root: conventions.is_last_page(root.value),
    )
