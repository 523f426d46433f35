"""Which language a reply is in: by its script, else by its most frequent small words. Short texts stay undecided."""

import re
from collections import Counter
from typing import Final

_SCRIPTS: Final = {
    "ja": re.compile("[\u3040-\u30ff]"),
    "ko": re.compile("[\uac00-\ud7af]"),
    "zh": re.compile("[\u4e00-\u9fff]"),
    "uk": re.compile("[іїєґІЇЄҐ]"),
    "ru": re.compile("[\u0400-\u04ff]"),
    "el": re.compile("[\u0370-\u03ff]"),
    "ar": re.compile("[\u0600-\u06ff]"),
    "he": re.compile("[\u0590-\u05ff]"),
    "th": re.compile("[\u0e00-\u0e7f]"),
    "hi": re.compile("[\u0900-\u097f]"),
}
_SAME_SCRIPT: Final = {"ja": ("zh",), "uk": ("ru",)}

_WORDS: Final = {
    "en": "the and is are you your of to in for with that this have it not on was be will can i we please from",
    "de": "der die das und ist sind sie ihre ihr nicht ein eine mit für von zu den dem im auf ich wir wird haben bitte",
    "fr": "le la les et est sont vous votre de des une un pour avec que pas dans sur nous je il au du ne sera",
    "es": "el la los las y es son usted su de que en un una para con no por del se lo nos está ha gracias",
    "it": "il lo la gli e è sono lei di che in un una per con non del della si le ha i ci grazie",
    "pt": "o a os as e é são você seu de que em um uma para com não do da se no na por obrigado está",
    "nl": "de het een en is zijn u uw van dat in voor met niet op te ik we wij er aan wordt heeft bij",
    "pl": "i w na z jest są nie się do to że o za od dla po czy pan pani już może",
    "sv": "och är det en ett inte du din att på i för med som av har vi jag till om den",
    "tr": "ve bir bu için ile de da değil sizin ne var mı olarak daha çok en ben siz",
}
_SMALL_WORDS: Final = {language: frozenset(words.split()) for language, words in _WORDS.items()}
_WORD = re.compile(r"[^\W\d_]+")

KNOWN: Final = tuple(sorted([*_SCRIPTS, *_SMALL_WORDS]))


def language_of(text: str) -> str | None:
    """The language, or None where the text does not tell."""
    letters = sum(map(len, _WORD.findall(text)))
    if not letters:
        return None
    for language, script in _SCRIPTS.items():
        found = len(script.findall(text))
        shared = sum(len(_SCRIPTS[other].findall(text)) for other in _SAME_SCRIPT.get(language, ()))
        if found and found + shared > letters / 2:
            return language
    counts: Counter[str] = Counter()
    for word in _WORD.findall(text.casefold()):
        counts.update(language for language, words in _SMALL_WORDS.items() if word in words)
    (first, most), (_, second) = [*counts.most_common(2), ("", 0), ("", 0)][:2]
    return first if most >= 2 and most > second else None
