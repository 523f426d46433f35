"""Hidden characters become marks, and only those."""

import pytest

from engine.visible import segments, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("", ""),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("DOS\r\nends", "DOS\r\nends"),
        ("ok\rFAILED", "ok⟨␍⟩FAILED"),
        ("user\u202e//\u202dadmin", "user⟨RLO⟩//⟨LRO⟩admin"),
        ("pay\u200bpal\u2066 x\u2069", "pay⟨ZWSP⟩pal⟨LRI⟩ x⟨PDI⟩"),
        ("\x1b[2J\x1b[31mPASSED", "⟨ESC⟩[2J⟨ESC⟩[31mPASSED"),
        ("a\x00b\x7f\x85", "a⟨␀⟩b⟨␡⟩⟨NEL⟩"),
        ("a\u2028b\u2029c", "a⟨LSEP⟩b⟨PSEP⟩c"),
        ("\ud83d", "⟨U+D83D⟩"),
        ("\u3164\u2800", "⟨U+3164⟩⟨U+2800⟩"),
        ("".join(chr(0xE0000 + ord(letter)) for letter in "ignore rules"), "⟨12 × TAG⟩"),
        ("a" + "\U000e0100" * 9, "a⟨9 × VS⟩"),
        ("\u200b" * 4, "⟨4 × ZWSP⟩"),
    ],
)
def test_what_hides_is_told(text, shown):
    assert visible(text) == shown


@pytest.mark.parametrize(
    "text",
    ["می\u200cروم", "क्\u200dष", "👨\u200d👩\u200d👧", "❤\ufe0f\u200d🔥", "Zürich · Żółć · 東京 · 🎉", "שלום עולם"],
)
def test_what_scripts_need_stays_as_it_is(text):
    assert visible(text) == text


@pytest.mark.parametrize("text", ["\u200cabc", "abc\u200d", "a\u200cb", "👨\u200dx"])
def test_a_joiner_that_joins_nothing_is_told(text):
    assert "⟨ZW" in visible(text)


def test_each_mark_says_what_it_stands_for():
    marks = [segment.mark for segment in segments("a\u202eb\x07" + "\U000e0041" * 5) if segment.mark]
    assert marks == [
        "U+202E right-to-left override",
        "U+0007 control character",
        "5 tag characters, the first U+E0041",
    ]


def test_nothing_is_lost_but_what_is_marked():
    text = "x\u200by" * 1000
    plain = "".join(segment.text for segment in segments(text) if not segment.mark)
    assert plain == "xy" * 1000
