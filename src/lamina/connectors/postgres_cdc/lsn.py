"""Positions in PostgreSQL's WAL, and which transactions a snapshot of it has seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lamina.errors import Refused

Numbers = npt.NDArray[np.int64]
_XID_BITS = 32
_REMEMBERED = "remembered"


def lsn_of(text: str) -> int:
    """`16/B374D848` as a number."""
    high, _, low = text.partition("/")
    return int(high, 16) << 32 | int(low, 16)


def lsn_text(lsn: int) -> str:
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


@dataclass(frozen=True, slots=True)
class SeenTransactions:
    """Those whose rows are in a snapshot: `pg_current_snapshot()`, and the WAL's end after it."""

    text: str  # xmin:xmax:xip,xip; of those below xmax all but the ones listed
    until: int  # all of them were committed before

    def visible(self, xids: Numbers) -> npt.NDArray[np.bool_]:
        """Of transactions by their 32 bits, as pgoutput has them."""
        first, behind, listed = self.text.split(":")
        running = np.array([int(each) for each in listed.split(",") if each], np.int64)
        whole = _with_epoch(xids, int(behind))
        ended = (whole < int(first)) | ((whole < int(behind)) & ~np.isin(whole, running))
        return np.asarray(ended, np.bool_)


def _with_epoch(xids: Numbers, near: int) -> Numbers:
    """The 64 bits of transactions that are at most 2^31 away from *near*."""
    half = 1 << (_XID_BITS - 1)
    return (xids - near + half) % (1 << _XID_BITS) + near - half


@dataclass(frozen=True, slots=True)
class Position:
    """An offset: everything that was committed before *lsn* has been read."""

    lsn: int
    slot: str
    system: str  # the identifier of the database cluster, and its timeline
    timeline: str
    table: int  # its OID: a table that was made again has another
    columns: str  # those that were read, with the types they had
    seen: SeenTransactions | None = None  # what the snapshot had, until *lsn* is behind it
    published: str = ""  # the publication, by its rows in the catalogs
    remembers: bool = False  # the rows up to here are remembered

    def written(self) -> dict[str, str]:
        fields = {
            "lsn": lsn_text(self.lsn),
            "slot": self.slot,
            "system": self.system,
            "timeline": self.timeline,
            "table": str(self.table),
            "columns": self.columns,
        }
        if self.seen is not None:
            fields |= {"seen": self.seen.text, "seen_until": lsn_text(self.seen.until)}
        if self.published:
            fields["published"] = self.published
        return fields | ({"rows": _REMEMBERED} if self.remembers else {})

    @classmethod
    def read(cls, offset: Mapping[str, str], where: str) -> Position | None:
        """None where a pipeline begins; Refused if it is not an offset of this kind of source."""
        if not offset:
            return None
        try:
            seen = None
            if "seen" in offset:
                seen = SeenTransactions(offset["seen"], lsn_of(offset["seen_until"]))
            return cls(
                lsn=lsn_of(offset["lsn"]),
                slot=offset["slot"],
                system=offset["system"],
                timeline=offset["timeline"],
                table=int(offset["table"]),
                columns=offset["columns"],
                seen=seen,
                published=offset.get("published", ""),
                remembers=offset.get("rows") == _REMEMBERED,
            )
        except (KeyError, ValueError) as error:
            message = f"the offset is not one of a PostgreSQL table: {dict(offset)}"
            advice = "The source had another format before: give it another name"
            raise Refused(message, where=where, advice=advice) from error
