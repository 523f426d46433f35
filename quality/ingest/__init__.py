"""How traces come in.

`jsontext` (strict JSON with raw slices) → `reader` (a file or body, item by item) → `formats` (each item into records)
→ `store` (records into rows) → `importer` (a whole file, with progress and a report). All but the last two know no
Django.
"""
