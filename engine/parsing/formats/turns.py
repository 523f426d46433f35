"""Headers of chat turns: the role in `<|im_start|>assistant`, `<|start_header_id|>assistant<|end_header_id|>`."""

import re

from engine.parsing.format import Block
from engine.parsing.source import Source, Wait
from engine.parsing.toolbox import Toolbox

OPENS = ("<|im_start|>", "<|start_header_id|>")

_WORD = re.compile(r"[a-z]*")
_ROLES = ("assistant", "user", "system", "tool", "ipython")


def read(source: Source, _tools: Toolbox, _opening: str) -> Wait[Block | None]:
    start = source.pos
    if (yield from source.match(_WORD)) not in _ROLES:
        source.rewind(start)
    return Block()
