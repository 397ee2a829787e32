"""A cursor over the words of one statement: what its grammar is read with."""

from __future__ import annotations

from lamina.errors import BadPipeline
from lamina.pipeline.model import Place
from lamina.pipeline.tokens import Script, Word


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

    def comes(self, *keywords: str) -> bool:
        """Whether *keywords* come next, all of them."""
        ahead = self._words[self._at : self._at + len(keywords)]
        return [word.upper for word in ahead] == list(keywords)

    def take(self, *keywords: str) -> bool:
        """Pass over *keywords* if they come next, all of them."""
        if not self.comes(*keywords):
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
        if word is None or not word.is_name:
            raise self.bad(f"the name of {what} is expected, not {self.shown()}")
        self._at += 1
        return word

    def place(self) -> Place:
        """Where the next word stands."""
        word = self.next
        return self.script.place(word.start if word else self._words[-1].end)

    def type_words(self, depth: int) -> tuple[Word, ...]:
        """The words up to the next comma at *depth*, or to the end of the brackets.

        Types have brackets of their own: STRUCT<a: INT, b: ARRAY<INT>>.
        """
        start, opened = self._at, list[Word]()
        while (word := self.next) is not None and word.depth >= depth:
            if word.upper == "," and word.depth == depth and not opened:
                break
            for sign in word.upper:
                if sign == "<":
                    opened.append(word)
                elif sign == ">" and opened:
                    opened.pop()
            self._at += 1
        if opened:
            raise self.script.bad("'<' is never closed", opened[-1])
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
