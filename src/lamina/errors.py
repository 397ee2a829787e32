"""Every error Lamina raises: one tree, sorted by what the caller should do.

LaminaError
+-- UsageError            the call is wrong: fix it
|   +-- BadName           a name that cannot be part of a path
|   +-- BadPipeline       a pipeline that would not work: the place and what to write instead
+-- NotFound              no such object, checkpoint or savepoint
+-- AlreadyExists         a create-only name is taken by somebody else
+-- Refused               a rule forbids it: the message says which and what would allow it
|   +-- StillNeeded       deleting it would break a checkpoint, savepoint or running pipeline
|   +-- StateChanged      the columns of a state are not those it was written with
|   +-- Overflow          a value left the range of its type under ANSI: widen the type
|   +-- NotShared         an executor does not see the pipeline's home: use a shared folder
+-- Corrupt               the bytes are all there and wrong: restore them from a copy
|   +-- SizeMismatch      an object is shorter or longer than its manifest says
|   +-- DigestMismatch    an object's SHA-256 is not the one its manifest names
|   +-- BadManifest       a manifest that cannot be read as one
|   +-- LogDamaged        the commit log has a hole, a broken link or an entry against the rules
|   +-- WalDamaged        a WAL file holds bytes that nobody wrote, or lacks some that were synced
|   +-- RunDamaged        a run of keyed state is not what its footer says
+-- Unsupported           written by a newer Lamina, or needs a feature this one lacks: upgrade
+-- Fenced                another process took the pipeline over: stop
+-- Diverged              two histories of one epoch: stop and look
+-- WouldLose             going on would give up acknowledged epochs: only a person's flag may
+-- StoreError            the store or the network failed
    +-- StoreUnavailable  timeouts, resets, 429, 5xx: tried again until the budget was spent
    +-- AccessDenied      credentials missing, wrong or without the right
    +-- StoreReadOnly     the store takes no writes
    +-- StoreFull         no space or quota left
    +-- UnsafeStore       the store ignores create-only puts: two writers would not see each other
    +-- UploadFailed      some of many uploads failed; `uploaded` names what is now an orphan
    +-- Cancelled         the caller asked to stop
    +-- SparkLost         Spark did not start, or its JVM is gone: find out what ended it

The codes are stable: scripts may match on them. docs/errors.md explains each.
"""

from __future__ import annotations

from typing import Any, ClassVar


class LaminaError(Exception):
    """What happened, where, and what to do about it."""

    code: ClassVar[str] = "LAM-0000"
    default_advice: ClassVar[str] = ""

    def __init__(self, message: str, *, where: str = "", advice: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.advice = advice or self.default_advice

    def __str__(self) -> str:
        text = f"[{self.code}] {self.message}"
        if self.where:
            text += f" (at {self.where})"
        if self.advice:
            text += f". {self.advice}"
        return text

    def __reduce__(self) -> tuple[Any, ...]:
        # Keyword-only arguments do not survive the default pickling of exceptions.
        return (_rebuild, (type(self), self.message, self.where, self.advice))


def _rebuild(kind: type[LaminaError], message: str, where: str, advice: str) -> LaminaError:
    return kind(message, where=where, advice=advice)


class UsageError(LaminaError):
    code = "LAM-1000"


class BadName(UsageError):
    code = "LAM-1001"
    default_advice = "Choose a shorter or simpler name"


class BadPipeline(UsageError):
    code = "LAM-1100"


class NotFound(LaminaError):
    code = "LAM-2000"


class AlreadyExists(LaminaError):
    code = "LAM-2001"


class Refused(LaminaError):
    code = "LAM-2100"


class StillNeeded(Refused):
    code = "LAM-2101"


class StateChanged(Refused):
    code = "LAM-2102"
    default_advice = "Read it with the columns it was written with, or start new state"


class Overflow(Refused):
    code = "LAM-2103"
    default_advice = "Use a wider type, for example sum(CAST(x AS DECIMAL(38, 0)))"


class NotShared(Refused):
    code = "LAM-2104"
    default_advice = (
        "Put the home into a folder that every executor shares with the driver, or into an object "
        "store (--home s3://...), or run everything on one machine: --master 'local[*]'"
    )


class Corrupt(LaminaError):
    code = "LAM-3000"
    default_advice = "Restore the object from a copy, or use an older checkpoint"


class SizeMismatch(Corrupt):
    code = "LAM-3001"


class DigestMismatch(Corrupt):
    code = "LAM-3002"


class BadManifest(Corrupt):
    code = "LAM-3003"


class LogDamaged(Corrupt):
    code = "LAM-3004"
    default_advice = "Do not write to this store; restore the log/ folder from a copy"


class WalDamaged(Corrupt):
    code = "LAM-3005"
    default_advice = "Restore the file from a copy; `lamina wal verify` shows every damaged place"


class RunDamaged(Corrupt):
    code = "LAM-3006"
    default_advice = "A local run is made again from checkpoint and WAL: open the state again"


class Unsupported(LaminaError):
    code = "LAM-3100"
    default_advice = "Upgrade Lamina: pip install --upgrade lamina"


class Fenced(LaminaError):
    code = "LAM-4000"
    default_advice = "Another process owns this pipeline now; this one must stop"


class Diverged(LaminaError):
    code = "LAM-4001"
    default_advice = "Stop every process of this pipeline and compare the histories"


class WouldLose(LaminaError):
    code = "LAM-4002"


class StoreError(LaminaError):
    code = "LAM-5000"


class StoreUnavailable(StoreError):
    code = "LAM-5001"
    default_advice = "Check that the store can be reached, then run the command again"


class AccessDenied(StoreError):
    code = "LAM-5002"
    default_advice = "Check the credentials and the rights they give on this bucket or folder"


class StoreReadOnly(StoreError):
    code = "LAM-5003"
    default_advice = "Use a store that this process may write to"


class StoreFull(StoreError):
    code = "LAM-5004"
    default_advice = "Free space or raise the quota; nothing that was there is damaged"


class UnsafeStore(StoreError):
    code = "LAM-5005"
    default_advice = "Use a store with atomic create-only puts (If-None-Match: *)"


class Cancelled(StoreError):
    code = "LAM-5006"


class SparkLost(StoreError):
    code = "LAM-5008"
    default_advice = (
        "What it was doing is not committed. Find out what ended it (memory?), and start again"
    )


class UploadFailed(StoreError):
    code = "LAM-5007"
    default_advice = "Begin a new checkpoint; gc removes what this one left behind"

    def __init__(
        self,
        message: str,
        *,
        where: str = "",
        advice: str = "",
        uploaded: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message, where=where, advice=advice)
        self.uploaded = uploaded

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild_upload, (self.message, self.where, self.advice, self.uploaded))


def _rebuild_upload(
    message: str, where: str, advice: str, uploaded: tuple[str, ...]
) -> UploadFailed:
    return UploadFailed(message, where=where, advice=advice, uploaded=uploaded)


def all_errors() -> tuple[type[LaminaError], ...]:
    """Every class of the tree, parents before children."""
    found: list[type[LaminaError]] = [LaminaError]
    for kind in found:
        found.extend(kind.__subclasses__())
    return tuple(found)
