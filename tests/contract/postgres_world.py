"""A table of a real PostgreSQL, for the contract of sinks."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lamina.connectors.keyed import WriteMode, Writing
from lamina.connectors.postgres.session import Server
from tests.contract.sinks import APPENDED, Hook, Shown, by_epoch, nothing
from tests.servers.postgres import ADMIN, PostgresServer

if TYPE_CHECKING:
    from lamina.engine.ports import Sink


def server_of(server: PostgresServer) -> Server:
    return Server("127.0.0.1", server.port, "postgres", ADMIN)


@dataclass
class PostgresWorld:
    server: PostgresServer
    schema: str
    exactly_once: bool = True

    def open(self, hook: Hook = nothing) -> Sink:
        from lamina.connectors.postgres.sink import Place, PostgresSink  # noqa: PLC0415  an extra

        place = Place(self.schema, 'Out, of "it".')
        writing = Writing(WriteMode.APPEND)
        return PostgresSink(
            "out", server_of(self.server), place, output=APPENDED, writing=writing, hook=hook
        )

    def open_without_stream(self) -> Sink:
        from lamina.connectors.postgres.sink import Place, PostgresSink  # noqa: PLC0415  an extra

        return PostgresSink("out", server_of(self.server), Place(self.schema, 'Out, of "it".'))

    def shown(self) -> Shown:
        there = self.server.execute(
            f"SELECT 1 FROM pg_tables WHERE schemaname = '{self.schema}' "
            "AND tablename = 'Out, of \"it\".'"
        )
        if not there:
            return {}
        rows = self.server.execute(f'SELECT v FROM {self.schema}."Out, of ""it""."')
        return by_epoch(value for (value,) in rows)

    def down(self) -> AbstractContextManager[None]:
        return self.server.down()
