"""Azurite, Microsoft's emulator of Azure Blob Storage, from npm."""

from __future__ import annotations

import base64
import hmac
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from typing import Any

from tests.servers.process import free_port, running
from tests.servers.s3 import request_status

ACCOUNT = "devstoreaccount1"
# Azurite's own development key: published in its documentation, the same everywhere.
ACCOUNT_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
CONTAINER = "container1"
_BINARY = Path(__file__).parent / "azurite" / "node_modules" / ".bin" / "azurite-blob"
_API_VERSION = "2021-12-02"


@dataclass(frozen=True, slots=True)
class AzureServer:
    port: int

    def url(self, prefix: str = "") -> str:
        return f"az://{CONTAINER}/{prefix}"

    def options(self, **changed: Any) -> dict[str, Any]:
        return {
            "account_name": ACCOUNT,
            "account_key": ACCOUNT_KEY,
            "endpoint": f"http://127.0.0.1:{self.port}/{ACCOUNT}",
            "client_options": {"allow_http": True, "timeout": "30s"},
            **changed,
        }


def azurite_missing() -> str:
    """Why Azurite cannot run here, or the empty text."""
    if shutil.which("node") is None:
        return "Azurite needs Node.js, and there is none"
    return "" if _BINARY.exists() else "Azurite is not installed: make azurite"


@contextmanager
def azurite(folder: Path) -> Iterator[AzureServer]:
    port = free_port()
    command = [str(_BINARY), "--blobHost", "127.0.0.1", "--blobPort", str(port)]
    command += ["--location", str(folder), "--silent", "--disableTelemetry"]
    command += ["--skipApiVersionCheck"]
    with running(command, folder=folder, ready=lambda: _create_container(port)):
        yield AzureServer(port)


def _create_container(port: int) -> bool:
    """One PUT, signed by hand (Shared Key)."""
    path = f"/{ACCOUNT}/{CONTAINER}"
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": _API_VERSION}
    listed = "".join(f"{name}:{value}\n" for name, value in headers.items())
    to_sign = "PUT" + "\n" * 12 + f"{listed}/{ACCOUNT}{path}\nrestype:container"
    signature = hmac.digest(base64.b64decode(ACCOUNT_KEY), to_sign.encode(), "sha256")
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(signature).decode()}"
    headers["Content-Length"] = "0"
    return request_status("PUT", port, f"{path}?restype=container", headers=headers) in (201, 409)
