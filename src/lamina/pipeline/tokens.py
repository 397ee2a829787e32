"""The words of a pipeline file, each with its place; sqlglot's tokenizer knows Spark's literals.

Nothing is ever generated from tokens: what Spark runs is the user's text, cut at their offsets. So
text that sqlglot reads in another way than Spark does is refused or read as Spark does.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from sqlglot import Token, TokenType
from sqlglot.dialects.spark import Spark
from sqlglot.errors import TokenError

from lamina.errors import BadPipeline
from lamina.pipeline.comments import after_comment, unclosed
from lamina.pipeline.model import NOWHERE, START, Place

_LITERALS = (
    TokenType.STRING,
    TokenType.RAW_STRING,
    TokenType.HEX_STRING,
    TokenType.BIT_STRING,
    TokenType.BYTE_STRING,
    TokenType.NATIONAL_STRING,
    TokenType.UNICODE_STRING,
    TokenType.HEREDOC_STRING,
)
_OPEN = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_CLOSE = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)
_HINT = "/*+"
_PAIRS = {"(": ")", "[": "]", "{": "}"}
_TWO_WORDS = (
    ("GROUP", "BY"),
    ("ORDER", "BY"),
    ("SORT", "BY"),
    ("CLUSTER", "BY"),
    ("DISTRIBUTE", "BY"),
    ("GROUPING", "SETS"),
)
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
    literal: str = ""  # which kind, if it is another one than '...' and "...": X'41', r'a'

    @property
    def upper(self) -> str:
        """For comparing with a keyword or a sign; what is quoted is never one."""
        return "" if self.is_quoted or self.is_string else self.text.upper()

    @property
    def is_number(self) -> bool:
        return not self.is_string and not self.is_quoted and self.text[:1].isdecimal()

    @property
    def is_name(self) -> bool:
        """Whether it may name something; keywords may too, nearly everywhere in Spark's SQL."""
        if self.is_quoted:
            return True
        return not self.is_string and not self.is_number and is_plain(self.text)


def is_plain(text: str) -> bool:
    """Whether a text is a name without quotes."""
    return bool(text) and text.replace("_", "a").isalnum()


def whole_number(text: str) -> int | None:
    """What ASCII digits say; other digits are letters to SQL."""
    return int(text) if text.isascii() and text.isdecimal() else None


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
        return bad_at(message, self.file, self.place(offset), advice)

    def slice(self, words: tuple[Word, ...]) -> str:
        """The text from the first of *words* to the last, as it was written."""
        return self.text[words[0].start : words[-1].end] if words else ""


def bad_at(message: str, file: str, place: Place, advice: str = "") -> BadPipeline:
    """An error with its place, if it has one."""
    where = file if place == NOWHERE else f"{file}:{place.line}:{place.column}"
    return BadPipeline(message, where=where, advice=advice)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Advice for a name that is not known: the nearest one that is, or all of them."""
    names = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), names, n=1)
    if near:
        return f"Did you mean {names[near[0]]!r}?"
    return f"There are {', '.join(names.values())}" if names else "There is none"


def read_script(text: str, file: str, origin: Place = START) -> Script:
    """Split a text into words; BadPipeline if it has no end of a literal or of a bracket."""
    empty = Script(text, file, (), origin)
    try:
        tokens = Spark().tokenize(text)
    except TokenError as error:
        at = unclosed(text)
        if at is None:
            message = str(error.__cause__ or error).partition(" from ")[0]
            raise empty.bad(f"invalid literal: {message}", 0) from error
        raise empty.bad("a literal or comment is never closed", at) from error
    _check_gaps(empty, tokens)
    _check_brackets(empty, tokens)
    return replace(empty, words=tuple(_joined(_words(text, tokens), text)))


def _words(text: str, tokens: list[Token]) -> Iterator[Word]:
    depth, last = 0, -1
    for token in tokens:
        depth -= token.token_type in _CLOSE
        if token.start <= last:
            continue  # 1L is three tokens at one place
        start, last = token.start, token.end
        kind = token.token_type
        said = text[start : last + 1] if kind is TokenType.NUMBER else token.text
        yield Word(
            said,
            start,
            last + 1,
            is_string=kind in _LITERALS,
            is_quoted=kind is TokenType.IDENTIFIER,
            depth=depth,
            literal=kind.name if kind in _LITERALS and kind is not TokenType.STRING else "",
        )
        depth += kind in _OPEN


def _joined(words: Iterable[Word], text: str) -> Iterator[Word]:
    """Words that are one to Spark: 'it''s', and GROUP /* a comment */ BY."""
    waiting: Word | None = None
    for word in words:
        if waiting is None:
            waiting = word
        elif _is_doubled_quote(waiting, word, text):
            said = f"{waiting.text}{text[word.start]}{word.text}"
            waiting = replace(waiting, text=said, end=word.end)
        elif (waiting.upper, word.upper) in _TWO_WORDS:
            waiting = replace(waiting, text=f"{waiting.upper} {word.upper}", end=word.end)
        else:
            yield waiting
            waiting = word
    if waiting is not None:
        yield waiting


def _is_doubled_quote(left: Word, right: Word, text: str) -> bool:
    """Two literals without a space between are one with a quote in it; r'a''b' stays two."""
    plain = left.is_string and right.is_string and not left.literal and not right.literal
    return plain and left.end == right.start and text[left.start] == text[right.start]


def _check_gaps(script: Script, tokens: list[Token]) -> None:
    """Between words there is white space, and comments that are comments to Spark too."""
    at = 0
    for start, end in [*((t.start, t.end + 1) for t in tokens), (len(script.text),) * 2]:
        while at < start:
            if script.text[at].isspace():
                at += 1
                continue
            at = _comment(script, at)
        if script.text.startswith(_HINT, start):
            raise _hint(script, start)
        at = max(at, end)


def _comment(script: Script, at: int) -> int:
    text = script.text
    end = after_comment(text, at)
    if end is None:
        raise script.bad(f"{text[at : at + 2]!r} is not SQL", at)
    if text.startswith(_HINT, at):
        raise _hint(script, at)
    if text.startswith("--", at) and text[at:end].rstrip("\r\n").endswith("\\"):
        raise script.bad(
            "a comment ends in a backslash: Spark would read the next line as part of it", at
        )
    return end


def _hint(script: Script, at: int) -> BadPipeline:
    return script.bad("a hint: Lamina places rows itself, by their keys", at, "Leave it out")


def _check_brackets(script: Script, tokens: list[Token]) -> None:
    opened: list[Token] = []
    for token in tokens:
        if token.token_type in _OPEN:
            opened.append(token)
        elif token.token_type in _CLOSE:
            if not opened or _PAIRS[opened[-1].text] != token.text:
                raise script.bad(f"{token.text!r} closes nothing", token.start)
            opened.pop()
        elif token.token_type is TokenType.SEMICOLON and opened:
            break
    if opened:
        raise script.bad(f"{opened[-1].text!r} is never closed", opened[-1].start)
