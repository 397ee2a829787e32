"""The words of a pipeline file, each with its place; sqlglot's tokenizer knows Spark's literals.

Nothing is ever generated from tokens: what Spark runs is the user's text, cut at their offsets.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import Token, TokenType
from sqlglot.dialects.spark import Spark
from sqlglot.errors import TokenError

from lamina.errors import BadPipeline
from lamina.pipeline.model import START, Place

_STRINGS = (TokenType.STRING, TokenType.RAW_STRING)
_OPEN = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_CLOSE = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)
logging.getLogger("sqlglot").addHandler(logging.NullHandler())


@dataclass(frozen=True, slots=True)
class Word:
    """One token: *text* is what it says, [start, end) where it stands."""

    text: str
    start: int
    end: int
    is_string: bool
    is_quoted: bool
    depth: int  # of brackets around it

    @property
    def upper(self) -> str:
        """For comparing with a keyword; what is quoted is never one."""
        return "" if self.is_quoted or self.is_string else self.text.upper()


@dataclass(frozen=True, slots=True)
class Script:
    """A text and its words."""

    text: str
    file: str
    words: tuple[Word, ...]
    origin: Place = START  # of its first character, if it is a part of a file

    def place(self, offset: int) -> Place:
        before = self.text[:offset]
        line, column = before.count("\n"), offset - (before.rfind("\n") + 1)
        return Place(self.origin.line + line, column + (1 if line else self.origin.column))

    def bad(self, message: str, at: Word | int | None, advice: str = "") -> BadPipeline:
        """An error that says where; None is the end of the text."""
        offset = len(self.text.rstrip()) if at is None else at if isinstance(at, int) else at.start
        place = self.place(offset)
        where = f"{self.file}:{place.line}:{place.column}"
        return BadPipeline(message, where=where, advice=advice)

    def slice(self, words: tuple[Word, ...]) -> str:
        """The text from the first of *words* to the last, as it was written."""
        return self.text[words[0].start : words[-1].end] if words else ""


def read_script(text: str, file: str, origin: Place = START) -> Script:
    """Split a text into words; BadPipeline if it has no end of a literal or of a bracket."""
    try:
        tokens = Spark().tokenize(text)
    except TokenError as error:
        raise BadPipeline(f"a literal or comment does not end: {error}", where=file) from error
    script = Script(text, file, tuple(_words(text, tokens)), origin)
    _check_brackets(script, tokens)
    return script


def _words(text: str, tokens: list[Token]) -> Iterator[Word]:
    depth = 0
    waiting: Word | None = None
    for token in tokens:
        depth -= token.token_type in _CLOSE
        string = token.token_type in _STRINGS
        quoted = token.token_type is TokenType.IDENTIFIER
        word = Word(token.text, token.start, token.end + 1, string, quoted, depth)
        depth += token.token_type in _OPEN
        if waiting is not None and string and word.start == waiting.end:
            # 'it''s' comes as two literals: the doubled quote is one quote, as in Spark 4.
            quote = text[word.start]
            joined = f"{waiting.text}{quote}{word.text}"
            waiting = Word(joined, waiting.start, word.end, True, False, waiting.depth)
            continue
        if waiting is not None:
            yield waiting
        waiting = word if string else None
        if not string:
            yield word
    if waiting is not None:
        yield waiting


def _check_brackets(script: Script, tokens: list[Token]) -> None:
    opened: list[Token] = []
    for token in tokens:
        if token.token_type in _OPEN:
            opened.append(token)
        elif token.token_type in _CLOSE:
            if not opened:
                raise script.bad(f"{token.text!r} closes nothing", token.start)
            opened.pop()
        elif token.token_type is TokenType.SEMICOLON and opened:
            break
    if opened:
        raise script.bad(f"{opened[-1].text!r} is never closed", opened[-1].start)


class Cursor:
    """Reads the words of one statement, from left to right."""

    def __init__(self, script: Script, words: tuple[Word, ...]) -> None:
        self.script = script
        self._words = words
        self._at = 0

    @property
    def next(self) -> Word | None:
        return self._words[self._at] if self._at < len(self._words) else None

    @property
    def rest(self) -> tuple[Word, ...]:
        return self._words[self._at :]

    def take(self, *keywords: str) -> bool:
        """Pass over *keywords* if they come next, all of them."""
        ahead = self._words[self._at : self._at + len(keywords)]
        if [word.upper for word in ahead] != list(keywords):
            return False
        self._at += len(keywords)
        return True

    def expect(self, *keywords: str, after: str) -> None:
        if not self.take(*keywords):
            wanted = " ".join(keywords)
            raise self.bad(f"{wanted} is expected after {after}, not {self.shown()}")

    def name(self, what: str) -> Word:
        """A name, plain or in back quotes."""
        word = self.next
        if word is None or word.is_string or not (word.is_quoted or _is_name(word.text)):
            raise self.bad(f"the name of {what} is expected, not {self.shown()}")
        self._at += 1
        return word

    @property
    def first(self) -> Word:
        """The word that the statement begins with."""
        return self._words[0]

    def place(self) -> Place:
        """Where the next word stands."""
        word = self.next
        return self.script.place(word.start if word else self._words[-1].end)

    def until_comma(self, depth: int) -> tuple[Word, ...]:
        """The words up to the next comma at *depth*, or to the end of the brackets.

        Types have brackets of their own: STRUCT<a: INT, b: ARRAY<INT>>.
        """
        start, angles = self._at, 0
        while (word := self.next) is not None:
            ends = (word.text == "," and word.depth == depth) or word.depth < depth
            if ends and not angles:
                break
            if not word.is_string and not word.is_quoted:
                angles += word.text.count("<") - word.text.count(">")
            self._at += 1
        return self._words[start : self._at]

    def end(self, statement: str) -> None:
        if self.next is not None:
            raise self.bad(f"{self.shown()} is not known in {statement}")

    def any(self, what: str) -> Word:
        word = self.next
        if word is None:
            raise self.bad(f"{what} is expected, not the end of the statement")
        self._at += 1
        return word

    def shown(self) -> str:
        word = self.next
        return "the end of the statement" if word is None else repr(word.text[:60])

    def bad(self, message: str, advice: str = "") -> BadPipeline:
        last = self._words[-1].end if self._words else None
        return self.script.bad(message, self.next or last, advice)


def _is_name(text: str) -> bool:
    return text.replace("_", "a").isalnum() and not text[0].isdigit()
