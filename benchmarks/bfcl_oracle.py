"""BFCL's own checker as a filter: a line of JSON in (`id`, `category`, `calls`), true or false out.

Runs in an environment of its own that holds `bfcl-eval` without its dependencies; `benchmarks.bfcl` makes it. The
checker asks the table of models for one thing alone, so a table with one made-up model stands in for it, and the SDKs
of all providers with it.
"""

import json
import sys
import types
from importlib.resources import files
from pathlib import Path

MODEL = "model"
table = types.ModuleType("bfcl_eval.constants.model_config")
table.MODEL_CONFIG_MAPPING = {MODEL: types.SimpleNamespace(underscore_to_dot=True)}
sys.modules[table.__name__] = table

from bfcl_eval.constants.enums import Language  # noqa: E402
from bfcl_eval.eval_checker.ast_eval.ast_checker import ast_checker  # noqa: E402


def read(path):
    return {entry["id"]: entry for entry in map(json.loads, path.read_text(encoding="utf-8").splitlines())}


def valid(entry, truth, category, calls):
    if category == "irrelevance":  # what cannot be read as a call counts as none
        return not any(isinstance(arguments, dict) for _, arguments in calls)
    if not all(isinstance(arguments, dict) for _, arguments in calls):
        return False
    made = [{name: arguments} for name, arguments in calls]
    return ast_checker(entry["function"], made, truth, Language.PYTHON, category, MODEL)["valid"]


def main():
    data, known = Path(str(files("bfcl_eval"))) / "data", {}
    for line in sys.stdin:
        asked = json.loads(line)
        category = asked["category"]
        if category not in known:
            name = f"BFCL_v4_{category}.json"
            truths = data / "possible_answer" / name
            known[category] = read(data / name), read(truths) if truths.exists() else {}
        entries, truths = known[category]
        truth = truths.get(asked["id"], {}).get("ground_truth")
        print(json.dumps(valid(entries[asked["id"]], truth, category, asked["calls"])), flush=True)


main()
