"""S3, Google Cloud Storage and Azure Blob Storage, through obstore.

obstore's own retries are off (NO_RETRIES): after a lost answer it would repeat a create-only put by
itself and tell the winner that another writer was first. RetryingStore repeats it, and reads back.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from lamina.errors import (
    AlreadyExists,
    NotFound,
    SizeMismatch,
    StoreError,
    StoreUnavailable,
)
from lamina.store.address import Address
from lamina.store.base import (
    PART_SIZE_BYTES,
    Data,
    Folder,
    ObjectInfo,
    check_key,
    check_range,
    parts_of,
    size_of,
)
from lamina.store.causes import OBSTORE_ERRORS, Doing
from lamina.store.client import connect, failed
from lamina.store.folders import below, check_prefix
from lamina.store.readback import create, whole

SORTED_AT_ONCE_MAX = 10_000
_LETTERS = re.compile(r"[0-9A-Za-z]+")
CREATE_BYTES_MAX = 64 * 1024 * 1024
"""No log entry, manifest or piece of a log is larger: each is created by one conditional put."""
_PAGE_OBJECTS = 1000
_PARTS_AT_ONCE = 2
_PARTS_MAX = 10_000  # S3's limit


class RemoteStore:
    """A bucket or container, or a folder in one. Errors are typed; nothing is tried twice.

    Options are those of obstore's store (`region`, `endpoint`, `access_key_id`, `client_options`,
    ...). What is not given comes from the usual environment variables, as obstore reads them.
    """

    def __init__(self, url: str, **options: Any) -> None:
        self._address = Address.parse(url)
        self._client = connect(self._address, options)

    @property
    def url(self) -> str:
        return self._address.url

    def get(self, key: str) -> bytes:
        with self._errors(key, "read"):
            return self._client.get(check_key(key)).bytes().to_bytes()

    def get_range(self, key: str, start: int, length: int) -> bytes:
        check_range(start, length)
        with self._errors(key, "read"):
            data = b""
            if length:  # an empty range is none that HTTP can ask for
                found = self._client.get_range(check_key(key), start=start, length=length)
                data = found.to_bytes()
        if len(data) != length or (not length and self.head(key).size < start):
            raise SizeMismatch(
                f"{length} bytes from {start} are wanted, {len(data)} are there",
                where=self._where(key),
            )
        return data

    def head(self, key: str) -> ObjectInfo:
        try:
            with self._errors(key, "read"):
                return ObjectInfo(key, self._client.head(check_key(key))["size"])
        except StoreUnavailable:
            raise
        except StoreError as error:
            self._ask_why(key)
            message = f"{error.message}, and then answered a read"
            raise StoreUnavailable(message, where=error.where) from None

    def _ask_why(self, key: str) -> None:
        """The error of a read: a refused HEAD has no body, and so no code that says what is wrong.

        It matters: 400 may be a request that nobody can answer, or a token that has expired.
        """
        with suppress(SizeMismatch), self._errors(key, "read"):
            self._client.get_range(check_key(key), start=0, length=1)

    def put(self, key: str, data: Data) -> None:
        check_key(key)
        with self._errors(key, "write"):
            size = size_of(data)
            if size <= PART_SIZE_BYTES:
                self._client.put(key, whole(data), use_multipart=False)
            else:
                self._put_in_parts(key, data, part_size=_part_size(size))

    def _put_in_parts(self, key: str, data: Data, *, part_size: int) -> None:
        # obstore keeps what it is given without copying; a part of a file is valid until the next.
        parts = (bytes(part) for part in parts_of(data, part_size))
        self._client.put(
            key, parts, use_multipart=True, chunk_size=part_size, max_concurrency=_PARTS_AT_ONCE
        )

    def put_if_absent(self, key: str, data: Data) -> None:
        """One conditional put up to CREATE_BYTES_MAX; for more, a look and then the parts.

        The second is not atomic. It is enough, because nothing on which writers compete (log
        entries, begin, manifest) may be larger, and a large artifact is in a folder named by the
        id of its one writer: nobody else creates it.
        """
        check_key(key)
        create(self, key, data, attempt=lambda: self._create(key, data))

    def _create(self, key: str, data: Data) -> None:
        with self._errors(key, "write"):
            if self._created_at_once(key, size_of(data)):
                self._client.put(key, whole(data), mode="create", use_multipart=False)
                return
        if self._exists(key):
            raise AlreadyExists("the key is taken", where=self._where(key))
        self.put(key, data)

    @staticmethod
    def _created_at_once(key: str, size: int) -> bool:
        """Documents and pieces of a log up to CREATE_BYTES_MAX whole; others go part by part."""
        is_decisive = key.endswith((".json", ".wal"))
        return size <= PART_SIZE_BYTES or (size <= CREATE_BYTES_MAX and is_decisive)

    def _exists(self, key: str) -> bool:
        try:
            self.head(key)
        except NotFound:
            return False
        return True

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        return self._below(check_prefix(prefix), after)

    def _below(self, prefix: str, after: str) -> Iterator[ObjectInfo]:
        """Sorted, although not every server sorts.

        SeaweedFS and Azure's hierarchical namespaces list folder by folder (`a/b` before `a-b`),
        S3 Express in no order. So up to SORTED_AT_ONCE_MAX objects are taken page by page and
        sorted; if there are more, level by level: memory stays bounded, and requests few.
        """
        found: builtins.list[ObjectInfo] = []
        for page in self._pages(prefix, after):
            found.extend(info for info in page if info.key > after)
            if len(found) > SORTED_AT_ONCE_MAX:
                found.clear()
                yield from self._level_by_level(prefix, after)
                return
        yield from sorted(found, key=lambda info: info.key)

    def _pages(self, prefix: str, after: str) -> Iterator[builtins.list[ObjectInfo]]:
        with self._errors(prefix, "list"):
            offset = safe_offset(prefix, after)
            for page in self._client.list(prefix or None, offset=offset, chunk_size=_PAGE_OBJECTS):
                yield [ObjectInfo(each["path"], each["size"]) for each in page]

    def _level_by_level(self, prefix: str, after: str) -> Iterator[ObjectInfo]:
        level = self.list_folder(prefix)
        entries: dict[str, ObjectInfo | None] = {info.key: info for info in level.objects}
        entries |= {f"{below(prefix, name)}/": None for name in level.folders}
        for key, info in sorted(entries.items()):
            if info is None and (key > after or after.startswith(key)):
                yield from self._below(key[:-1], after)
            elif info is not None and key > after:
                yield info

    def list_folder(self, prefix: str = "") -> Folder:
        """Some servers (SeaweedFS) name a folder for a while after its last object is deleted."""
        prefix = check_prefix(prefix)
        with self._errors(prefix, "list"):
            found = self._client.list_with_delimiter(prefix or None)
        objects = [ObjectInfo(each["path"], each["size"]) for each in found["objects"]]
        folders = [path.rstrip("/").rpartition("/")[2] for path in found["common_prefixes"]]
        return Folder(tuple(sorted(objects, key=lambda info: info.key)), tuple(sorted(folders)))

    def delete(self, key: str) -> None:
        try:
            with self._errors(key, "delete"):
                self._client.delete(check_key(key))
        except NotFound:
            return  # Azure and Google say so; S3 does not

    def copy(self, source: str, target: str) -> None:
        with self._errors(source, "write"):
            self._client.copy(check_key(source), check_key(target))

    @contextmanager
    def _errors(self, key: str, doing: Doing) -> Iterator[None]:
        try:
            yield
        except OBSTORE_ERRORS as error:
            # `from None`: the original text may hold what must not reach a log.
            raise failed(self._client, error, self._where(key), doing) from None
        except BaseException as error:
            if type(error).__name__ != "PanicException":
                raise
            raise StoreError(
                "the store client failed unexpectedly",
                where=self._where(key),
                advice="Check the endpoint and the other options of the store",
            ) from None

    def _where(self, key: str) -> str:
        return f"{self.url.rstrip('/')}/{key}"


def safe_offset(prefix: str, after: str) -> str | None:
    """A key to start the listing at that loses none after *after*, whatever the server's order.

    Servers that list folder by folder skip `a/b` when asked for what follows `a-b` or `a`. Names
    of letters and digits have one order everywhere. So: the name directly below the prefix, as
    far as it has only these, and then a little less. What comes too much is filtered here.
    """
    start = f"{prefix}/" if prefix else ""
    if not after.startswith(start):
        return None
    found = _LETTERS.match(after, len(start))
    letters = found[0].rstrip("0Aa") if found else ""  # their predecessors are no letters
    return f"{start}{letters[:-1]}{chr(ord(letters[-1]) - 1)}" if letters else None


def _part_size(size: int) -> int:
    return max(PART_SIZE_BYTES, -(-size // _PARTS_MAX))
