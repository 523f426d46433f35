"""The units of deploy/ start what the product is made of."""

import configparser
import shlex
from pathlib import Path

from quality.celery import app

UNITS = Path(__file__).resolve().parents[2] / "deploy" / "systemd"


def commands() -> dict[str, list[str]]:
    """What each service starts, by the unit's name."""
    found = {}
    for path in UNITS.glob("*.service"):
        unit = configparser.ConfigParser(strict=False, interpolation=None)
        unit.optionxform = str
        unit.read(path)
        found[path.name] = shlex.split(unit["Service"]["ExecStart"])
    return found


def test_each_queue_has_its_worker() -> None:
    heard = [
        word.partition("=")[2] for command in commands().values() for word in command if word.startswith("--queues=")
    ]
    assert sorted(heard) == sorted(queue.name for queue in app.conf.task_queues)


def test_the_target_wants_every_unit() -> None:
    target = (UNITS / "quality-lab.target").read_text()
    assert all(name.replace("@.", "@1.") in target for name in commands())


def test_a_deployment_begins_with_the_service_and_not_with_a_process() -> None:
    begins = [name for name, command in commands().items() if "new_deployment" in command]
    assert begins == ["quality-lab-deployment.service"]
    assert "RemainAfterExit=yes" in (UNITS / begins[0]).read_text()
    for name in commands().keys() - set(begins):
        assert f"After={begins[0]}" in (UNITS / name).read_text()
