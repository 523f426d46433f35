"""A report as JUnit XML, in the form that CI systems read: one testcase a case.

`failure` is a case that fails, `error` one that could not be decided, `skipped` one that is not gated. The counts of
each case are properties of the suite: inside a testcase the schemas of CI systems allow none.
"""

import re
from xml.etree import ElementTree as ET

from engine.visible import visible
from quality.cases.report import Entry, Outcome, Report

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ELEMENTS = {Outcome.FAILED: "failure", Outcome.ERROR: "error", Outcome.SKIPPED: "skipped"}


def junit(report: Report) -> str:
    """The XML document as text, in UTF-8."""
    faults = len(report.faults)
    counts = {
        "tests": str(len(report.entries) + faults),
        "failures": str(report.count(Outcome.FAILED)),
        "errors": str(report.count(Outcome.ERROR) + faults),
    }
    time = f"{report.duration_s:.3f}"
    root = ET.Element("testsuites", {"name": "tool-call-regressions", "time": time, **counts})
    suite = ET.SubElement(
        root,
        "testsuite",
        {
            "name": f"tool-call-regressions.{report.mode}",
            "timestamp": report.started_at[:19],
            "time": time,
            **counts,
            "skipped": str(report.count(Outcome.SKIPPED)),
        },
    )
    properties = ET.SubElement(suite, "properties")
    for name, value in _properties(report):
        ET.SubElement(properties, "property", {"name": _text(name), "value": _text(value)})
    for number, fault in enumerate(report.faults, 1):
        case = ET.SubElement(suite, "testcase", {"classname": "source", "name": f"fault {number}", "time": "0.000"})
        ET.SubElement(case, "error", {"type": "bad_input", "message": _text(fault)}).text = _text(fault)
    for entry in report.entries:
        _case(suite, entry)
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _properties(report: Report) -> list[tuple[str, str]]:
    found = [("outcome", report.exit.name.lower()), ("source", report.source), ("verdict", report.verdict)]
    found += [("reason", reason) for reason in report.reasons]
    for entry in report.entries:
        if "judged" in entry.data:
            found.append((f"{entry.case}.samples", f"{entry.data['passes']}/{entry.data['judged']}"))
            verdicts = " ".join(sample["verdict"] for sample in entry.data["samples"])
            found.append((f"{entry.case}.verdicts", verdicts))
    return found


def _case(suite: ET.Element, entry: Entry) -> None:
    attributes = {"classname": _text(entry.tool or "no tool"), "name": _text(entry.case), "time": f"{entry.time_s:.3f}"}
    case = ET.SubElement(suite, "testcase", attributes)
    name = _ELEMENTS.get(entry.outcome)
    details = "\n".join(map(_text, entry.details))
    if name is None:
        if details:
            ET.SubElement(case, "system-out").text = details
        return
    told = ET.SubElement(case, name, {"type": str(entry.outcome), "message": _text(_message(entry))})
    told.text = details or _text(entry.headline)


def _message(entry: Entry) -> str:
    """What lists of tests show: the result, and the first thing that went wrong."""
    is_told = entry.outcome is Outcome.SKIPPED or not entry.details
    return entry.headline if is_told else f"{entry.headline}. {entry.details[0]}"


def _text(value: str) -> str:
    """What hides is made visible, and what XML cannot carry is gone by then."""
    return _NOT_XML.sub("\ufffd", visible(value))
