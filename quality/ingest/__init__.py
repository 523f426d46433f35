"""How traces come in.

`jsontext` (strict JSON with raw slices) → `reader` (a file or body, item by item) → `formats` (each item into records)
→ `store` (records into rows) → `importer` (a whole file, with progress and a report). All but the last two know no
Django.

Formats of spans take a way of their own to records: `carriers` (how OpenTelemetry's spans are written) →
`conventions` (what their attributes mean) → `gathering` (spans of a file to traces) → `spans` (a trace to its turn).
"""
