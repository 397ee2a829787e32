"""S3 servers: SeaweedFS (real), ministack (an emulator, quick), rclone (ignores conditions)."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.servers.process import Server, binary, free_port, running

ACCESS_KEY = "test"
SECRET_KEY = "testtest"
REGION = "us-east-1"
BUCKET = "bucket1"
BOUNDED = {"access_key_id": "bounded", "secret_access_key": "bounded-secret"}
"""May read, write and list in SeaweedFS, unless a bucket's policy says no."""


@dataclass(frozen=True, slots=True)
class S3Server:
    """Where it listens, and how to open a store in it."""

    port: int
    iceberg_port: int = 0  # of an Iceberg REST catalog, if it has one
    master_port: int = 0
    filer_port: int = 0
    process: Server | None = None  # to kill and to start again

    def url(self, prefix: str = "") -> str:
        return f"s3://{BUCKET}/{prefix}"

    def options(self, **changed: Any) -> dict[str, Any]:
        """SeaweedFS needs up to 8 s for one of 20 creators of one key: hence the timeout."""
        return {
            "endpoint": f"http://127.0.0.1:{self.port}",
            "access_key_id": ACCESS_KEY,
            "secret_access_key": SECRET_KEY,
            "region": REGION,
            "virtual_hosted_style_request": False,
            "client_options": {"allow_http": True, "timeout": "30s"},
            **changed,
        }


@contextmanager
def seaweedfs(folder: Path) -> Iterator[S3Server]:
    port, master, volume, filer, iceberg = (free_port() for _ in range(5))
    command = seaweedfs_command(
        folder, port=port, master=master, volume=volume, filer=filer, iceberg=iceberg
    )
    with running(command, folder=folder, ready=lambda: takes_puts(port)) as process:
        yield S3Server(port, iceberg, master, filer, process)


def seaweedfs_command(
    folder: Path, address: str = "127.0.0.1", *, port: int, iceberg: int = 0, **ports: int
) -> list[str]:
    """All of it in one process that keeps its data in *folder*; *ports* are of its parts."""
    (folder / "data").mkdir(exist_ok=True)
    credentials = [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}]
    actions = ["Admin", "Read", "Write", "List", "Tagging"]
    identity = {"name": "dev", "credentials": credentials, "actions": actions}
    keys = [{"accessKey": BOUNDED["access_key_id"], "secretKey": BOUNDED["secret_access_key"]}]
    bounded = {"name": "bounded", "credentials": keys, "actions": ["Read", "Write", "List"]}
    (folder / "s3.json").write_text(json.dumps({"identities": [identity, bounded]}))
    return [
        binary("weed"),
        f"-logdir={folder}",
        "server",
        f"-dir={folder / 'data'}",
        f"-ip={address}",
        f"-ip.bind={address}",
        *(f"-{part}.port={number}" for part, number in ports.items()),
        "-master.volumeSizeLimitMB=64",
        "-master.electionTimeout=1s",
        "-master.heartbeatInterval=300ms",
        "-master.telemetry=false",
        "-volume.max=50",
        "-volume.preStopSeconds=0",
        "-filer",
        "-s3",
        f"-s3.port={port}",
        f"-s3.port.iceberg={iceberg}",
        "-s3.port.lance=0",
        f"-s3.config={folder / 's3.json'}",
    ]


def table_bucket(server: S3Server, name: str) -> None:
    """A bucket of SeaweedFS whose tables are in its REST catalog."""
    command = [binary("weed"), "shell", f"-master=127.0.0.1:{server.master_port}"]
    command += [f"-filer=127.0.0.1:{server.filer_port}"]
    asked = f"s3tables.bucket -create -name {name} -account 000000000000\n"
    done = subprocess.run(command, input=asked, capture_output=True, text=True, check=False)
    assert "arn:" in done.stdout, done.stdout + done.stderr


@contextmanager
def ministack(folder: Path) -> Iterator[S3Server]:
    port = free_port()
    # Without BIND_HOST it listens on every interface.
    env = {"BIND_HOST": "127.0.0.1", "IOT_MTLS_ENABLED": "0", "GATEWAY_PORT": str(port)}
    with running([binary("ministack")], folder=folder, env=env, ready=lambda: takes_puts(port)):
        yield S3Server(port)


@contextmanager
def rclone(folder: Path) -> Iterator[S3Server]:
    port = free_port()
    (folder / "root" / BUCKET).mkdir(parents=True)
    command = [binary("rclone"), "serve", "s3", "--addr", f"127.0.0.1:{port}"]
    command += ["--auth-key", f"{ACCESS_KEY},{SECRET_KEY}", "--config", "", str(folder / "root")]
    with running(command, folder=folder, ready=lambda: takes_puts(port)):
        yield S3Server(port)


def takes_puts(port: int) -> bool:
    """Ready is not an open port: the bucket is there and a first put succeeds."""
    return signed_put(port, f"/{BUCKET}") in (200, 409) and (
        signed_put(port, f"/{BUCKET}/ready") == 200
    )


def deny(server: S3Server, action: str, prefix: str) -> None:
    """Of SeaweedFS: nobody but an administrator may do *action* below *prefix*, from now on.

    This is the bucket's policy, all of it: it takes the place of the one before.
    """
    statement: dict[str, Any] = {"Effect": "Deny", "Principal": "*", "Action": action}
    bucket = f"arn:aws:s3:::{BUCKET}"
    if action == "s3:ListBucket":
        condition = {"StringLike": {"s3:prefix": f"{prefix}/*"}}
        statement |= {"Resource": bucket, "Condition": condition}
    else:
        statement |= {"Resource": f"{bucket}/{prefix}/*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    assert signed_put(server.port, f"/{BUCKET}", policy.encode(), query="policy=") == 204


def signed_put(port: int, path: str, body: bytes = b"", *, query: str = "") -> int:
    """The status of one PUT, signed by hand (AWS version 4); 0 if nobody answers."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    digest = hashlib.sha256(body).hexdigest()
    headers = {"host": f"127.0.0.1:{port}", "x-amz-content-sha256": digest, "x-amz-date": stamp}
    names = ";".join(headers)
    listed = "".join(f"{name}:{value}\n" for name, value in headers.items())
    request = f"PUT\n{path}\n{query}\n{listed}\n{names}\n{digest}"
    scope = f"{stamp[:8]}/{REGION}/s3/aws4_request"
    to_sign = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    key = f"AWS4{SECRET_KEY}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, to_sign.encode(), "sha256").hex()
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/{scope},"
        f"SignedHeaders={names},Signature={signature}"
    )
    return request_status("PUT", port, f"{path}?{query}", headers=headers, body=body)


def request_status(
    method: str, port: int, path: str, *, headers: dict[str, str], body: bytes = b""
) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path, body=body, headers=headers)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()
