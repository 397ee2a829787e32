"""Takes the known fields out of a JSON object, one by one, and keeps the rest.

Every complaint names the file and the path inside it; what nobody asked for is handed back by
`rest()`, so that fields of a newer minor version survive a round trip.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from lamina.errors import BadManifest, Corrupt, Unsupported
from lamina.format import canonical
from lamina.format.canonical import INTEGER_MIN, Json
from lamina.ids import CheckpointId

T = TypeVar("T")
_REQUIRED: Final[Any] = object()


class Fields:
    """One JSON object while it is being read."""

    def __init__(
        self, value: Json, where: str, path: str = "", *, error: type[Corrupt] = BadManifest
    ) -> None:
        self._where = where
        self._path = path
        self._error = error
        if not isinstance(value, Mapping):
            raise self._bad(path or "document", value, "an object")
        self._left: dict[str, Json] = dict(value)

    def text(self, name: str, default: Any = _REQUIRED) -> Any:
        return self._take(name, default, _is_text, "text")

    def integer(self, name: str, default: Any = _REQUIRED, *, least: int = 0) -> Any:
        return self._take(
            name, default, lambda v: _is_int(v) and v >= least, f"an integer of at least {least}"
        )

    def flag(self, name: str, default: Any = _REQUIRED) -> Any:
        return self._take(name, default, lambda v: isinstance(v, bool), "true or false")

    def raw(self, name: str, default: Any = _REQUIRED) -> Any:
        return self._take(name, default, lambda _: True, "present")

    def checkpoint_id(self, name: str, default: Any = _REQUIRED) -> Any:
        value = self.text(name, default)
        if not isinstance(value, str):
            return value
        return self.parsed(name, value, CheckpointId.parse)

    def object(self, name: str, default: Any = _REQUIRED) -> Fields:
        """The object under *name*, to be read field by field."""
        value = self._take(name, default, lambda _: True, "an object")
        return Fields(value, self._where, self._at(name), error=self._error)

    def optional_object(self, name: str) -> Fields | None:
        """The object under *name*; None if it is missing or null."""
        return None if self._left.get(name) is None else self.object(name)

    def map_of(self, name: str, read: Callable[[Fields], T]) -> dict[str, T]:
        """A map of objects; a missing one is empty."""
        outer = self._take(name, {}, lambda v: isinstance(v, Mapping), "an object")
        return {
            key: read(Fields(item, self._where, f"{self._at(name)}[{key!r}]", error=self._error))
            for key, item in outer.items()
        }

    def list_of(self, name: str, read: Callable[[Fields], T]) -> tuple[T, ...]:
        """A list of objects; a missing one is empty."""
        items = self._take(name, [], lambda v: isinstance(v, list), "a list")
        return tuple(
            read(Fields(item, self._where, f"{self._at(name)}[{index}]", error=self._error))
            for index, item in enumerate(items)
        )

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts; a missing one is empty."""
        return tuple(
            self._take(
                name, [], lambda v: isinstance(v, list) and all(map(_is_text, v)), "a list of text"
            )
        )

    def text_map(self, name: str) -> dict[str, str]:
        """A map from text to text; a missing one is empty."""
        return self._scalar_map(name, _is_text, "a map from text to text")

    def integer_map(self, name: str, *, least: int = INTEGER_MIN) -> dict[str, int]:
        """A map from text to integers; a missing one is empty."""
        return self._scalar_map(
            name,
            lambda v: _is_int(v) and v >= least,
            f"a map from text to integers of at least {least}",
        )

    def parsed(self, name: str, value: str, parse: Callable[[str], T]) -> T:
        """Run *parse* on a value already taken; its complaint gets a place."""
        try:
            return parse(value)
        except Exception as error:
            raise self._error(f"{self._at(name)}: {error}", where=self._where) from error

    def require(self, *required: str) -> None:
        """These must be there, even if their readers take a missing one for an empty one."""
        for name in required:
            if name not in self._left:
                raise self._error(f"{self._at(name)} is missing", where=self._where)

    def rest(self) -> dict[str, Json]:
        """What nobody has taken."""
        return self._left

    def bad(self, message: str) -> Corrupt:
        """An error about this object as a whole."""
        return self._error(f"{self._path or 'document'}: {message}", where=self._where)

    def _scalar_map(self, name: str, fits: Callable[[Any], bool], what: str) -> dict[str, Any]:
        value = self._take(
            name, {}, lambda v: isinstance(v, Mapping) and all(map(fits, v.values())), what
        )
        return dict(value)

    def _take(self, name: str, default: Any, fits: Callable[[Any], bool], what: str) -> Any:
        value = self._left.pop(name, default)
        if value is _REQUIRED:
            raise self._error(f"{self._at(name)} is missing", where=self._where)
        if value is default or fits(value):
            return value
        raise self._bad(self._at(name), value, what)

    def _bad(self, path: str, value: Any, what: str) -> Corrupt:
        shown = repr(value)
        return self._error(
            f"{path} is {shown[:60]}{'...' if len(shown) > 60 else ''}, not {what}",
            where=self._where,
        )

    def _at(self, name: str) -> str:
        return f"{self._path}.{name}" if self._path else name


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def open_checked(
    data: bytes, where: str, *, what: str, known: int, error: type[Corrupt] = Corrupt
) -> Fields:
    """The fields of a small file. Its version 1 had no checksum; a later one must match its own."""
    fields = Fields(canonical.decode(data, where), where, error=error)
    version = fields.integer("version", least=1)
    if version > known:
        raise Unsupported(f"{what} of version {version}; this Lamina knows {known}", where=where)
    if version > 1:
        canonical.decode_checked(data, where)
    elif fields.raw(canonical.CHECK, None) is not None:
        raise error("version 1 has no checksum, and this file has one", where=where)
    return fields
