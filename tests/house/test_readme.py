"""README and settings tell the same story."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_variable_that_the_settings_read_is_in_the_readme_and_the_other_way_round():
    settings = (ROOT / "quality/settings.py").read_text()
    read = set(re.findall(r'\bread\(\s*"([A-Z_]+)"', settings)) | set(re.findall(r'"(DATABASE_\w*URL)"', settings))
    told = set(re.findall(r"^\| `([A-Z_]+)` \|", (ROOT / "README.md").read_text(), flags=re.MULTILINE))
    assert len(read) > 10
    assert read == told


def test_every_file_that_the_readme_links_to_exists():
    for name in re.findall(r"\]\(([^)#:]+)\)", (ROOT / "README.md").read_text()):
        assert (ROOT / name).is_file(), name
