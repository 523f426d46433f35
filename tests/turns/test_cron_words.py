"""Cron expressions in words of languages that the library does not speak."""

import pytest
from django.utils import translation

from quality.turns.cron import in_words
from quality.turns.cron_words import cron_words


@pytest.mark.parametrize(
    ("cron", "words"),
    [
        ("30 8 * * MON-FRI", "at 08:30 · weekday: Monday–Friday"),
        ("0 9,18 * * *", "at 09:00, 18:00"),
        ("*/5 * * * *", "every 5 min"),
        ("* * * * *", "every minute"),
        ("15 * * * *", "minute: 15"),
        ("0 8-18/2 * * *", "minute: 0 · hour: 8–18/2"),
        ("0 2 L * *", "at 02:00 · day of the month: the last"),
        ("0 2 1,15 jan,6 *", "at 02:00 · day of the month: 1, 15 · month: January, June"),
        ("0 2 * * 0,7", "at 02:00 · weekday: Sunday, Sunday"),
        ("0 2 * * 1#2", "at 02:00 · weekday: Monday#2"),
        ("0 2 * * 5L", "at 02:00 · weekday: FridayL"),
    ],
)
def test_each_field_is_told_with_the_names_that_it_stands_for(cron, words):
    with translation.override("en"):
        assert cron_words(cron) == words


def test_english_is_the_librarys_own():
    with translation.override("en"):
        assert in_words("30 8 * * MON-FRI") == "At 08:30 on Monday through Friday"


@pytest.mark.parametrize(("language", "days"), [("it", "Lunedì–Venerdì"), ("ru", "Понедельник–Пятница")])
def test_days_are_named_in_the_readers_language(language, days):
    with translation.override(language):
        assert days in in_words("30 8 * * MON-FRI")
