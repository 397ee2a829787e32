"""Objects that others have put into a bucket: listed page by page, and read piece by piece.

Nothing is written here, so the client may try again by itself. Every piece that is read says which
object it is of: one that was replaced in between is noticed at the next piece.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from io import RawIOBase
from typing import Any

from lamina.errors import NotFound, Refused
from lamina.store.address import Address
from lamina.store.causes import OBSTORE_ERRORS, Doing
from lamina.store.client import connect, failed

PAGE_OBJECTS = 1000
RETRIES = {"max_retries": 5, "retry_timeout": timedelta(seconds=20)}


@dataclass(frozen=True, slots=True)
class FoundObject:
    """An object as it was listed."""

    path: str  # below the address
    size: int
    changed_us: int
    etag: str = ""  # empty: the store has none

    @property
    def identity(self) -> tuple[int, str | int]:
        """What another object of the same name would not have."""
        return self.size, self.etag or self.changed_us


class Bucket:
    """Everything below an address. `requests` counts what was asked, pages of a listing too."""

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        self._address = Address.parse(url)
        self._client: Any = connect(self._address, dict(options), RETRIES)
        self.requests = 0

    @property
    def url(self) -> str:
        return self._address.url

    def pages(self, after: str = "") -> Iterator[list[FoundObject]]:
        """All objects, or those that the store lists after a name: some ignore it, or have an order
        of their own."""
        with self._errors("", "list"):
            self.requests += 1
            listed = self._client.list(None, offset=after or None, chunk_size=PAGE_OBJECTS)
            for number, page in enumerate(listed):
                self.requests += number > 0
                yield [_found(each) for each in page]

    def head(self, path: str) -> FoundObject | None:
        """An object as it is now; None if it is gone."""
        self.requests += 1
        try:
            with self._errors(path):
                return _found(self._client.head(path))
        except NotFound:
            return None

    def read(self, found: FoundObject, start: int, length: int) -> bytes:
        """Some bytes of *found*, and of no other object of its name."""
        self.requests += 1
        end = min(start + length, found.size)
        with self._errors(found.path):
            got = self._client.get(found.path, options={"range": (start, end)})
            now = _found(got.meta)
            data: bytes = got.bytes().to_bytes()
        if now.identity != found.identity or len(data) != end - start:
            raise Refused(
                "an object of a source changed while it was read",
                where=self.where(found.path),
                advice="Put new rows into new objects: each is read once",
            )
        return data

    def where(self, path: str) -> str:
        return f"{self.url}/{path}" if path else self.url

    @contextmanager
    def _errors(self, path: str, doing: Doing = "read") -> Iterator[None]:
        try:
            yield
        except OBSTORE_ERRORS as error:
            raise failed(self._client, error, self.where(path), doing) from None


class ObjectReader(RawIOBase):
    """An object as a file: one request for each piece that is asked for."""

    def __init__(self, bucket: Bucket, found: FoundObject, start: bytes = b"") -> None:
        """*start* is what was read of it already."""
        self._bucket, self._object, self._start = bucket, found, start
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._object.size)[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        wanted = min(len(buffer), self._object.size - self._at)
        if wanted <= 0:
            return 0
        if self._at < len(self._start):
            data = self._start[self._at : self._at + wanted]
        else:
            data = self._bucket.read(self._object, self._at, wanted)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def _found(meta: Mapping[str, Any]) -> FoundObject:
    """Listings and answers write the same tag with and without quotes."""
    etag = str(meta["e_tag"] or "").removeprefix("W/").strip('"')
    changed_us = round(meta["last_modified"].timestamp() * 1_000_000)
    return FoundObject(meta["path"], meta["size"], changed_us, etag)
