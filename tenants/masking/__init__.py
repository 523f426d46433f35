"""Masking of what is personal in evidence: rules, texts and the reader whose eyes are spared. No database."""
