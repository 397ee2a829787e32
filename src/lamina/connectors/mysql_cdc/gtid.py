"""Positions in MariaDB's binary log: the last GTID of every domain, `0-1-31,5-2-7`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from lamina.errors import Refused

Gtids = dict[int, str]
"""Of each domain the last GTID: domain-server-number."""


def gtids_of(text: str) -> Gtids:
    listed = (each.strip() for each in text.split(","))
    return {int(each.split("-")[0]): each for each in listed if each}


def gtids_text(gtids: Mapping[int, str]) -> str:
    return ",".join(gtids[domain] for domain in sorted(gtids))


def has_reached(at: Mapping[int, str], target: Mapping[int, str]) -> bool:
    """Whether everything up to *target* was read."""
    return all(_number(at.get(domain)) >= _number(gtid) for domain, gtid in target.items())


def _number(gtid: str | None) -> int:
    return 0 if gtid is None else int(gtid.rpartition("-")[2])


@dataclass(frozen=True, slots=True)
class Position:
    """An offset: all transactions up to these GTIDs have been read."""

    gtid: str
    server: str  # what the server calls itself (server_uid)
    table: str
    columns: str  # those that were read, with the types they had

    def written(self) -> dict[str, str]:
        return {
            "gtid": self.gtid,
            "server": self.server,
            "table": self.table,
            "columns": self.columns,
        }

    @classmethod
    def read(cls, offset: Mapping[str, str], where: str) -> Position | None:
        """None where a pipeline begins; Refused if it is not an offset of this kind of source."""
        if not offset:
            return None
        try:
            fields = {name: offset[name] for name in ("gtid", "server", "table", "columns")}
            gtids_of(fields["gtid"])
            types_of(fields["columns"])
            return cls(**fields)
        except (KeyError, ValueError) as error:
            message = f"the offset is not one of a MariaDB table: {dict(offset)}"
            advice = "The source had another format before: give it another name"
            raise Refused(message, where=where, advice=advice) from error


def types_text(types: Mapping[str, str]) -> str:
    return json.dumps(dict(types), sort_keys=True, separators=(",", ":"))


def types_of(text: str) -> dict[str, str]:
    return {str(name): str(kind) for name, kind in json.loads(text).items()}
