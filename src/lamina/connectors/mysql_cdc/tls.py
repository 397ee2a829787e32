"""How connections are encrypted, and what is checked of the server before it gets a password."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import Any

from lamina.errors import AccessDenied

DISABLED, PREFERRED, VERIFY_CA, VERIFY_IDENTITY = (  # and "required"
    "disabled",
    "preferred",
    "verify_ca",
    "verify_identity",
)
ADVICE = "Check ssl_mode, ssl_ca, ssl_cert and ssl_key"


@dataclass(frozen=True, slots=True)
class Tls:
    mode: str = PREFERRED
    ca: str = ""
    cert: str = ""
    key: str = ""

    @property
    def is_required(self) -> bool:
        return self.mode not in (DISABLED, PREFERRED)

    def settings(self, where: str) -> dict[str, Any]:
        """What pymysql is told. AccessDenied if a file cannot be read or is no certificate."""
        if self.mode == DISABLED:
            return {"ssl_disabled": True}
        if self.mode == PREFERRED and not self.cert:
            return {}
        try:
            return {"ssl": self._context()}
        except OSError as error:  # of the files, or of TLS in them
            message = f"the files of ssl_ca, ssl_cert or ssl_key cannot be used: {error}"
            raise AccessDenied(message, where=where, advice=ADVICE) from error

    def _context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.ca or None)
        context.check_hostname = self.mode == VERIFY_IDENTITY
        if self.mode not in (VERIFY_CA, VERIFY_IDENTITY):
            context.verify_mode = ssl.CERT_NONE
        if self.cert:
            context.load_cert_chain(self.cert, self.key or None)
        return context

    def check(self, connection: Any, where: str) -> None:
        """AccessDenied if it should be encrypted and is not: old versions of pymysql go on."""
        socket = connection._sock  # noqa: SLF001  nothing public says it
        if self.is_required and not isinstance(socket, ssl.SSLSocket):
            connection.close()
            message = "the server does not take encrypted connections"
            raise AccessDenied(message, where=where, advice=f"Switch TLS on there. {ADVICE}")
