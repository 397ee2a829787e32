"""As much of Kubernetes as a Spark driver asks for: its API server notes every call, and pods that
it is asked for are processes of this machine, started by the entry point of the image."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.servers.serving import serving

ROOT = Path(__file__).parents[2]
ENTRY_POINT = ROOT / "deploy" / "entrypoint.sh"
WATCH_S = 1.0
Shape = dict[str, Any]


class KubernetesApi(ThreadingHTTPServer):
    """`asked` are (verb, resource) as rights name them, `made` the objects that were created."""

    daemon_threads = True

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.asked: set[tuple[str, str]] = set()
        self.made: list[Shape] = []
        self.running: list[subprocess.Popen[bytes]] = []
        self._folder, self._environment = folder, environment

    def pods(self) -> list[Shape]:
        return [made for made in self.made if made["kind"] == "Pod"]

    def create(self, asked: Shape) -> Shape:
        self.made.append(asked)
        number = len(self.made)
        asked["metadata"] |= {"uid": f"uid-{number}", "resourceVersion": str(number)}
        if asked["kind"] == "Pod":
            asked["status"] = {"phase": "Running", "podIP": "127.0.0.1"}
            self._start(asked)
        return asked

    def _start(self, pod: Shape) -> None:
        [container] = pod["spec"]["containers"]
        fields = {"status.podIP": "127.0.0.1", "metadata.name": pod["metadata"]["name"]}
        told = {
            each["name"]: each.get("value") or fields[each["valueFrom"]["fieldRef"]["fieldPath"]]
            for each in container["env"]
        }
        told["SPARK_LOCAL_DIRS"] = str(self._folder)
        with (self._folder / f"{pod['metadata']['name']}.log").open("wb") as log:
            self.running.append(
                subprocess.Popen(
                    ["sh", ENTRY_POINT, *container["args"]],
                    env={**self._environment, **told},
                    cwd=self._folder,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            )

    def end(self) -> None:
        for process in self.running:
            process.kill()
            process.wait()


class _Request(BaseHTTPRequestHandler):
    server: KubernetesApi
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        resource, _ = self._place()
        self.server.asked.add(("create", resource))
        self._answer(201, self.server.create(json.loads(self._body())))

    def do_DELETE(self) -> None:
        resource, name = self._place()
        self._body()
        self.server.asked.add(("delete" if name else "deletecollection", resource))
        self._answer(200, {"apiVersion": "v1", "kind": "Status", "status": "Success"})

    def do_GET(self) -> None:
        resource, name = self._place()
        if "watch" in parse_qs(urlsplit(self.path).query):
            self.server.asked.add(("watch", resource))
            threading.Event().wait(WATCH_S)  # nothing happens meanwhile, and the client asks again
            self._send(200, b"")
        elif name:
            self.server.asked.add(("get", resource))
            self._answer(200, _driver(name))
        else:
            self.server.asked.add(("list", resource))
            asked = parse_qs(urlsplit(self.path).query).get("fieldSelector", [""])[0]
            one = asked.removeprefix("metadata.name=")
            shape = {"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "1"}}
            self._answer(200, shape | {"items": [_driver(one)] if one else self.server.pods()})

    def _place(self) -> tuple[str, str]:
        """`/api/v1/namespaces/lamina/pods/NAME`: what is asked for, and its name if it has one."""
        parts = urlsplit(self.path).path.strip("/").split("/")
        assert parts[:4] == ["api", "v1", "namespaces", "lamina"], self.path
        return parts[4], parts[5] if len(parts) > 5 else ""

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("content-length") or 0))

    def _answer(self, status: int, shape: Shape) -> None:
        self._send(status, json.dumps(shape).encode())

    def _send(self, status: int, data: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Nothing is written to the terminal."""


def _driver(name: str) -> Shape:
    """The pod of the driver, which Spark waits for until it is ready."""
    conditions = [{"type": "Ready", "status": "True"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "lamina", "uid": "of-the-driver"},
        "spec": {"containers": [{"name": "driver"}]},
        "status": {"phase": "Running", "conditions": conditions},
    }


@contextmanager
def kubernetes_api(folder: Path, environment: Mapping[str, str]) -> Iterator[KubernetesApi]:
    with serving(KubernetesApi(folder, {**os.environ, **environment})) as server:
        try:
            yield server
        finally:
            server.end()
