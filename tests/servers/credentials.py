"""Who gives out credentials on AWS, on loopback: a container's endpoint, and the token service."""

from __future__ import annotations

import datetime as dt
import json
import ssl
from contextlib import AbstractContextManager
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from tests.servers.serving import serving

TTL_S = 120
SECRET = "secret-of-the-role"
_ASSUMED = """<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>
<AccessKeyId>{AccessKeyId}</AccessKeyId><SecretAccessKey>{SecretAccessKey}</SecretAccessKey>
<SessionToken>{Token}</SessionToken><Expiration>{Expiration}</Expiration>
</Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"""


class CredentialServer(ThreadingHTTPServer):
    """One token is valid at a time. `presented` are the secrets with which it was asked for."""

    daemon_threads = True

    def __init__(self, certificate: Path | None) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.url = f"http{'s' if certificate else ''}://127.0.0.1:{self.server_address[1]}"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.socket = context.wrap_socket(self.socket, server_side=True)
        self.number = 1
        self.presented: list[str] = []
        self.seen: set[str] = set()

    @property
    def token(self) -> str:
        return f"token-{self.number}"

    def expire(self) -> None:
        """From now on another one is valid, and the one before is not."""
        self.number += 1

    def refusal(self, headers: Message) -> bytes | None:
        """What a store answers to a request with any other token."""
        token = headers.get("x-amz-security-token", "")
        self.seen.add(token)
        return None if token == self.token else b"<Error><Code>ExpiredToken</Code></Error>"

    def credentials(self) -> dict[str, str]:
        until = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=TTL_S)
        return {
            "AccessKeyId": f"key-{self.number}",
            "SecretAccessKey": SECRET,
            "Token": self.token,
            "Expiration": until.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }


class _Request(BaseHTTPRequestHandler):
    server: CredentialServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """A container's credentials."""
        self.server.presented.append(self.headers.get("authorization", ""))
        self._answer(json.dumps(self.server.credentials()))

    def do_POST(self) -> None:
        """AssumeRoleWithWebIdentity."""
        body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
        asked = parse_qs(urlsplit(self.path).query) | parse_qs(body)
        self.server.presented += asked["WebIdentityToken"]
        self._answer(_ASSUMED.format(**self.server.credentials()))

    def _answer(self, text: str) -> None:
        data = text.encode()
        self.send_response(200)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Nothing is written to the terminal."""


def credential_server(
    certificate: Path | None = None,
) -> AbstractContextManager[CredentialServer]:
    """With a *certificate* it speaks TLS: obstore asks no token service without."""
    return serving(CredentialServer(certificate))
