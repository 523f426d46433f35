"""Tool calls out of what chat models write.

`parse` reads a whole reply, `StreamParser` the same as it arrives; both run the one scanner (`machine`), so how a
reply was cut into pieces makes no difference. A format is a reader in `formats`, entered in its table.

source     text in pieces, and generators that read it        machine   text, reasoning and blocks, in order
extent     where a JSON value ends                             jsonish   JSON, strict and repaired
tagged     values between tags                                 toolbox   types by schema
calls      names and arguments, one set of rules               code      fences and backticks
structured `tool_calls`, streamed or not                       marks     all strings the scanner stops at
output     what has come of a reply so far                      format    what a format is
"""

from engine.parsing.stream import StreamParser, parse

__all__ = ["StreamParser", "parse"]
