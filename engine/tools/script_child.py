"""Runs inside the subprocess of a script tool: loads one file, answers one question, ends.

Called as `python -P script_child.py FILE` with the question as JSON on standard input: `{}` asks for the file's tools,
`{"name": …, "arguments": …}` is a call. The answer is one line of JSON on what was standard output: `{"value": …}` or
`{"error": …}`. Whatever the file itself prints goes to standard error, so it cannot spoil the answer.
"""

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any


def main(path: Path) -> None:
    question = json.load(sys.stdin)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        answer = json.dumps({"value": ask(load(path), question)})
    except (Exception, SystemExit) as exc:
        answer = json.dumps({"error": f"{type(exc).__name__}: {exc}"})
    answers.write(answer + "\n")
    answers.flush()


def load(path: Path) -> Any:
    sys.path.insert(0, str(path.parent))  # helpers beside the file can be imported
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def ask(module: Any, question: dict[str, Any]) -> Any:
    if not question:
        return module.get_tools()
    result = module.execute_tool(question["name"], question["arguments"])
    if result is not None and not isinstance(result, str):
        raise TypeError(f"execute_tool returned {type(result).__name__}; it must return str, or None for `not mine`")
    return result


if __name__ == "__main__":
    main(Path(sys.argv[1]))
