"""The writes of Google's XML API, translated to the JSON API of fake-gcs-server behind it.

obstore speaks XML to Google. fake-gcs-server reads, lists and deletes that way, but it takes
uploads and copies by the JSON API only. Here they are rewritten; whether a precondition holds, and
what the generation of an object is, the server behind decides.
"""

from __future__ import annotations

import hashlib
import http.client
import itertools
import json
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, quote, unquote, urlsplit

from tests.servers.serving import serving

_HOP = {"connection", "content-length", "date", "host", "server", "transfer-encoding"}
_CODES = {404: "NoSuchBucket", 412: "PreconditionFailed"}
_PART = re.compile(r'<ETag>"([0-9a-f]+)"</ETag><PartNumber>([0-9]+)</PartNumber>')


class GcsFront(ThreadingHTTPServer):
    """Parts of unfinished uploads are in its memory: nobody can see them, as at Google's."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, target_port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.target_port = target_port
        self.port: int = self.server_address[1]
        self.parts: dict[str, dict[int, bytes]] = {}
        self.upload_ids = map(str, itertools.count(1))


class _Request(BaseHTTPRequestHandler):
    server: GcsFront
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer is one write
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self._pass_on()

    def do_HEAD(self) -> None:
        self._pass_on()

    def do_DELETE(self) -> None:
        if upload := self._asked().get("uploadId"):
            self.server.parts.pop(upload, None)
            self._answer(204)
        else:
            self._pass_on()

    def do_PUT(self) -> None:
        asked, body = self._asked(), self._body()
        if upload := asked.get("uploadId"):
            self.server.parts[upload][int(asked["partNumber"])] = body
            self._answer(200, headers={"ETag": f'"{_md5(body)}"'})
        elif source := self.headers.get("x-goog-copy-source"):
            self._copy(source)
        else:
            self._upload(body)

    def do_POST(self) -> None:
        asked, body = self._asked(), self._body()
        if upload := asked.get("uploadId"):
            self._complete(upload, body.decode())
        elif "uploads" in asked:
            upload = next(self.server.upload_ids)
            self.server.parts[upload] = {}
            bucket, key = self._place()
            told = f"<Bucket>{bucket}</Bucket><Key>{_text(key)}</Key><UploadId>{upload}</UploadId>"
            self._answer(
                200, f"<InitiateMultipartUploadResult>{told}</InitiateMultipartUploadResult>"
            )
        else:
            self._answer(400)

    def _complete(self, upload: str, listed: str) -> None:
        parts = self.server.parts.pop(upload)
        named = {int(number): etag for etag, number in _PART.findall(listed)}
        if named != {number: _md5(part) for number, part in parts.items()}:
            self._answer(400, "<Error><Code>InvalidPart</Code></Error>")
        else:
            self._upload(b"".join(parts[number] for number in sorted(parts)))

    def _upload(self, body: bytes) -> None:
        bucket, key = self._place()
        path = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={quote(key, safe='')}"
        if condition := self.headers.get("x-goog-if-generation-match"):
            path += f"&ifGenerationMatch={condition}"
        status, _, answer = self._ask("POST", path, {"content-type": "text/plain"}, body)
        self._written(status, answer)

    def _copy(self, source: str) -> None:
        bucket, key = self._place()
        from_bucket, _, from_key = source.lstrip("/").partition("/")
        from_key = quote(unquote(from_key), safe="")
        path = f"/storage/v1/b/{from_bucket}/o/{from_key}/copyTo/b/{bucket}/o/{quote(key, safe='')}"
        headers = {"content-type": "application/json"}
        status, _, body = self._ask("POST", path, headers, b"{}")
        if status == 404:
            self._answer(404, "<Error><Code>NoSuchKey</Code></Error>")
        else:
            self._written(status, body)

    def _written(self, status: int, body: bytes) -> None:
        """What the XML API says of the object that the JSON API has written, or why it has not."""
        if status != 200:
            self._answer(status, f"<Error><Code>{_CODES.get(status, 'Other')}</Code></Error>")
            return
        found = json.loads(body)
        told = {"ETag": f'"{found["etag"]}"', "x-goog-generation": found["generation"]}
        etag = f"<ETag>{_text(told['ETag'])}</ETag>"
        self._answer(
            200, f"<CompleteMultipartUploadResult>{etag}</CompleteMultipartUploadResult>", told
        )

    def _pass_on(self) -> None:
        status, headers, body = self._ask(self.command, self.path, dict(self.headers), self._body())
        size = headers.get("content-length", "0") if self.command == "HEAD" else str(len(body))
        self.send_response(status)
        for name, value in headers.items():
            if name not in _HOP:
                self.send_header(name, value)
        self.send_header("content-length", size)
        self.end_headers()
        self.wfile.write(body)

    def _ask(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        host = f"127.0.0.1:{self.server.target_port}"
        connection = http.client.HTTPConnection(host, timeout=30)
        try:
            kept = {name: value for name, value in headers.items() if name.lower() not in _HOP}
            connection.request(method, path, body=body, headers={**kept, "Host": host})
            answer = connection.getresponse()
            names = {name.lower(): value for name, value in answer.getheaders()}
            return answer.status, names, answer.read()
        finally:
            connection.close()

    def _answer(
        self, status: int, body: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        data = body.encode()
        self.send_response(status)
        for name, value in {**(headers or {}), "content-length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def _asked(self) -> dict[str, str]:
        asked = parse_qs(urlsplit(self.path).query, keep_blank_values=True)
        return {name: values[-1] for name, values in asked.items()}

    def _place(self) -> tuple[str, str]:
        bucket, _, key = urlsplit(self.path).path.lstrip("/").partition("/")
        return bucket, unquote(key)

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("content-length", 0)))

    def log_message(self, *_: object) -> None:
        """Nothing is written to the terminal."""


def _md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def _text(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")


def gcs_front(target_port: int) -> AbstractContextManager[GcsFront]:
    return serving(GcsFront(target_port))
