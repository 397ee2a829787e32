"""fake-gcs-server, an emulator of Google Cloud Storage, from the Go proxy: `make gcs`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.servers.gcs_front import gcs_front
from tests.servers.process import free_port, running
from tests.servers.s3 import request_status

BUCKET = "bucket1"
_BINARY = Path(__file__).parent / "gcs" / "fake-gcs-server"


@dataclass(frozen=True, slots=True)
class GcsServer:
    port: int

    def url(self, prefix: str = "") -> str:
        return f"gs://{BUCKET}/{prefix}"

    def options(self, **changed: Any) -> dict[str, Any]:
        """A key of no account: it names the server, and says that nobody need sign in."""
        key = {
            "gcs_base_url": f"http://127.0.0.1:{self.port}",
            "disable_oauth": True,
            "client_email": "",
            "private_key": "",
            "private_key_id": "",
        }
        return {
            "service_account_key": json.dumps(key),
            "client_options": {"allow_http": True, "timeout": "30s"},
            **changed,
        }


def gcs_missing() -> str:
    """Why fake-gcs-server cannot run here, or the empty text."""
    return "" if _BINARY.exists() else "fake-gcs-server is not built: make gcs (it needs Go)"


@contextmanager
def gcs(folder: Path) -> Iterator[GcsServer]:
    port = free_port()
    with gcs_front(port) as front:
        own = f"127.0.0.1:{port}"
        command = [str(_BINARY), "-scheme", "http", "-host", "127.0.0.1", "-port", str(port)]
        command += ["-backend", "memory", "-public-host", own, "-external-url", f"http://{own}"]
        with running(command, folder=folder, ready=lambda: _create_bucket(port)):
            yield GcsServer(front.port)


def _create_bucket(port: int) -> bool:
    headers, body = {"content-type": "application/json"}, json.dumps({"name": BUCKET}).encode()
    made = request_status("POST", port, "/storage/v1/b", headers=headers, body=body)
    return made in (200, 409)
