"""Why a call of deltalake failed, as an error of our tree.

deltalake has few classes and says the rest in text: the object store's answer, the number of an
operating system's error. What an object store answers may hold signed addresses, so it is read by
the one table for that, and never passed on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from deltalake.exceptions import DeltaError, TableNotFoundError

from lamina.errors import LaminaError, NotFound, Refused, StoreError
from lamina.os_errors import from_os_error
from lamina.store.causes import from_obstore

_ARROW = re.compile(r"\s*(?:\x1b\[[0-9;]*m)*↳(?:\x1b\[[0-9;]*m)*\s*")
_OS_CODE = re.compile(r"(?:Os \{ code: |\(os error )([0-9]+)")
_STORE = re.compile(r"object store|Generic (?:S3|GCS|MicrosoftAzure) error|Error performing|HTTP")
_TEXT_MAX = 300


@dataclass(frozen=True, slots=True)
class TableErrors:
    """Errors of one table; *remote*: it is in an object store."""

    where: str
    remote: bool

    @contextmanager
    def typed(self) -> Iterator[None]:
        try:
            yield
        except (DeltaError, OSError, ValueError, OverflowError, pa.ArrowException) as error:
            raise self.of(error) from None  # the text of the original may hold a signed address
        except BaseException as error:
            if type(error).__name__ != "PanicException":
                raise
            message = "deltalake failed unexpectedly"
            advice = "Check the options of the sink, and the files of the table's log"
            raise StoreError(message, where=self.where, advice=advice) from None

    def of(self, error: Exception) -> LaminaError:
        text = _ARROW.sub(": ", str(error))
        if isinstance(error, OSError) and error.errno:
            return from_os_error(error, error.filename or self.where)
        if self.remote and (isinstance(error, OSError) or _STORE.search(text)):
            return from_obstore(RuntimeError(text), self.where)
        if code := _OS_CODE.search(text):
            return from_os_error(OSError(int(code[1]), text), self.where)
        if "not found" in text.lower():
            message = f"a file of the table is missing: {_short(text)}"
            return NotFound(message, where=self.where, advice="Restore it from a copy")
        return Refused(f"the Delta table cannot be used: {_short(text)}", where=self.where)


def is_missing(error: TableNotFoundError) -> bool:
    """No table and no folder; and not: a folder that may not be read."""
    code = _OS_CODE.search(str(error))
    return code is None or int(code[1]) == 2  # ENOENT


def _short(text: str) -> str:
    return " ".join(text.split())[:_TEXT_MAX]
