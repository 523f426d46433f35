"""What docs/expectations.md shows is what the code takes."""

import json
import re
from pathlib import Path

from quality.cases.expectation import Mode
from quality.cases.matchers import MATCHERS
from quality.cases.replies import CHECKS
from quality.cases.sample import Verdict
from quality.cases.schema import check

GUIDE = (Path(__file__).parents[2] / "docs" / "expectations.md").read_text("utf-8")


def test_the_example_is_right() -> None:
    example = re.findall(r"```json\n(.*?)```", GUIDE, re.DOTALL)[0]
    assert check(json.loads(example)) == []


def test_the_script_prints_the_sentence() -> None:
    (script,) = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    said: list[str] = []
    exec(script, {"print": said.append})
    assert said == ["get_order was called with order_number 7713; expected 7731."]
    assert said[0] in " ".join(GUIDE.split())


def test_every_word_of_the_language_is_told() -> None:
    for word in (*Mode, *MATCHERS, *CHECKS, *Verdict):
        assert re.search(rf'[`"]{word}[`"]', GUIDE), word
