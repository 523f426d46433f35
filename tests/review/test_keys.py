"""Keys of Review: one table, each person's own over it, never one key for two actions."""

import pytest
from django.core.exceptions import ValidationError

from quality.review.keys import ACTIONS, FIXED, KeyMap, changed, faults, goes_on, key_map


class Someone:
    def __init__(self, **settings):
        self.review_settings = settings


def test_the_table_itself_has_no_key_twice_and_none_of_the_frame():
    assert faults({name: action.key for name, action in ACTIONS.items()}) == {}


def test_a_key_of_ones_own_stands_over_the_table():
    keys = key_map(Someone(keys={"good_reply": "q", "gone_action": "z"}))
    assert (keys["good_reply"], keys["skip"]) == ("q", "s")
    assert keys.own == {"good_reply": "q"}


def test_two_actions_may_swap_their_keys():
    assert changed({"next": "k", "previous": "j"}) == {"next": "k", "previous": "j"}


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("s", "s is taken: skip to the next without a label"),
        ("c", "c is taken: a label, and what would have been right"),  # the first of two keys
        *[(key, f"{key} {what} everywhere.") for key, what in FIXED.items()],
        ("", "Give one character"),
        (" ", "Give one character"),
        ("ab", "Give one character"),
        ("F3", "Give one character"),  # goes on in a search
        ("F5", "Give one character"),  # loads the page anew
        ("\t", "Give one character"),
    ],
)
def test_what_cannot_be_a_key_is_refused_with_why(key, words):
    with pytest.raises(ValidationError) as refused:
        changed({"good_reply": key})
    assert words in refused.value.message_dict["good_reply"][0]


def test_both_sides_of_a_collision_are_told():
    assert set(faults({"next": "j", "previous": "j", "skip": "s"})) == {"next", "previous"}


@pytest.mark.parametrize("kept", [{"good_reply": "s"}, {"good_reply": 7}, "abc", None, {"good_reply": None}])
def test_what_was_kept_and_cannot_be_used_locks_nobody_out(kept):
    keys = key_map(Someone(keys=kept))
    assert faults(keys.keys) == {}
    assert keys["skip"] == "s"


def test_one_goes_on_after_a_label_unless_one_said_otherwise():
    assert [goes_on(Someone()), goes_on(Someone(advance=True)), goes_on(Someone(advance=False))] == [True, True, False]
    assert goes_on(object())


def test_the_sheet_has_every_action_once():
    names = [action.name for _, rows in KeyMap().sheet() for _, action in rows]
    assert sorted(names) == sorted(ACTIONS)
