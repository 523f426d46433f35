"""Masking of what is stored: of evidence before it is kept, of turns of our own when they end, of what was kept before.

incoming  records of turns and calls, and spans, on their way in
rows      any row of a table of evidence, field by field
ended     a turn of our own loop, which ran on the real values
stored    all that a tenant holds, for `manage.py mask_stored`
"""
