import os

import pytest
from django.core.management import CommandError, ManagementUtility, call_command
from django.db import connections

from quality.models import Import
from tenants.scope import tenant_scope
from tests.ingest.helpers import NEUTRAL, lines, state


@pytest.fixture
def run(tenant, tmp_path, capsys):
    """`run(data)`: exit code and what was printed."""

    def start(data: bytes, *options: str) -> tuple[int, str]:
        path = tmp_path / "traces.jsonl"
        path.write_bytes(data)
        code = 0
        try:
            call_command("import_traces", str(path), "--tenant", "acme", *options)
        except SystemExit as left:
            code = left.code
        printed = capsys.readouterr()
        return code, printed.out + printed.err

    return start


def test_a_good_file_leaves_with_0(run, tenant):
    code, printed = run(lines(NEUTRAL))
    assert code == 0
    assert "1 accepted, 0 unchanged, 0 rejected" in printed
    assert len(state(tenant)["calls"]) == 1
    assert run(lines(NEUTRAL)) == (0, printed.replace("1 accepted, 0", "0 accepted, 1").replace("1 new", "0 new"))


def test_refused_items_leave_with_1_and_are_told_by_line_field_and_reason(run):
    code, printed = run(lines(NEUTRAL, {**NEUTRAL, "index": -1}))
    assert code == 1
    assert "1 accepted, 0 unchanged, 1 rejected" in printed
    assert "line 2: index: Expected a whole number from 0 to 32,767. [out_of_range]" in printed


@pytest.mark.parametrize("data", [b"", b"tool,args\n", b'{"spans": []}'])
def test_a_file_of_which_nothing_was_read_leaves_with_2(run, data):
    assert run(data)[0] == 2


def test_a_file_of_several_formats_is_not_told_as_one_of_them(run):
    call = {"id": "c", "type": "function", "function": {"name": "t", "arguments": "{}"}}
    chat = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "tool_calls": [call]}]}
    assert "(several formats): 2 accepted" in run(lines(NEUTRAL, chat))[1]


def test_the_format_may_be_named(run):
    code, printed = run(b'{"messages": [{"role": "user"}, {"role": "assistant"}]}', "--format", "neutral")
    assert code == 2
    assert "missing_field" in printed


@pytest.mark.parametrize(
    ("file", "slug", "words"), [("none.json", "acme", "No such file"), ("none.json", "x", "no tenant")]
)
def test_a_wrong_name_is_told(tenant, tmp_path, file, slug, words):
    with pytest.raises(CommandError, match=words) as caught:
        call_command("import_traces", str(tmp_path / file), "--tenant", slug)
    assert caught.value.returncode == 2


@pytest.fixture
def manage(settings, monkeypatch, capsys):
    """`manage("import_traces", …)`: exit code and what was printed, as from a shell."""

    def start(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(connections, "close_all", lambda: None)
        with pytest.raises(SystemExit) as left:
            ManagementUtility(["manage.py", *arguments]).execute()
        printed = capsys.readouterr()
        return left.value.code, printed.out + printed.err

    return start


def test_what_is_no_readable_file_is_told_in_one_line(tenant, manage, tmp_path):
    wrong = {
        tmp_path: "is a folder. Name a file",
        tmp_path / "none.json": "No such file",
        tmp_path / "none.json" / "deeper": "No such file",
        "/proc/self/mem": "cannot be read: Input/output error",
    }
    if os.geteuid() != 0:  # root reads everything
        locked = tmp_path / "locked.json"
        locked.write_bytes(b"{}")
        locked.chmod(0)
        wrong[locked] = "Permission denied"
    for file, words in wrong.items():
        code, printed = manage("import_traces", str(file), "--tenant", "acme")
        assert code == 2
        assert words in printed
        assert str(file) in printed
        assert printed.count("\n") == 1
    with tenant_scope(tenant):
        assert not Import.objects.exists()


def test_a_preview_says_what_is_understood_and_stores_nothing(run, tenant):
    code, printed = run(lines(NEUTRAL, {"external_id": "run-2", "tool_name": "wait"}), "--preview")
    assert code == 0
    assert "Neutral" in printed
    assert "by tool_name, external_id" in printed
    assert "2 turns with 2 calls, 1 outcomes, 0 errors; 0 known, 0 refused. Nothing was stored." in printed
    assert 'turn 1: get_order {"n": "7"} -> {"status": "sent"}' in printed
    assert "1 times: No result was recorded. [no_result]" in printed
    code, printed = run(lines(NEUTRAL, {**NEUTRAL, "index": -1}), "--preview")
    assert code == 1
    assert "line 2: index: Expected a whole number" in printed
    assert run(b"tool,args\n", "--preview")[0] == 2
    with tenant_scope(tenant):
        assert not Import.objects.exists()
