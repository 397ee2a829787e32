"""An Ethernet switch in this process, with links that can be cut, slow or lossy.

A port is a TAP device in a network namespace: the kernel gives us each frame that a machine sends,
and takes those that it shall receive. So neither a bridge nor the kernel's netem is needed, nothing
is made outside of the namespaces, and everything is gone with this process.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import os
import random
import select
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

_CLONE_NEWNET = 0x40000000
_TUNSETIFF, _TAP, _NO_PI = 0x400454CA, 0x0002, 0x1000
_FRAME_BYTES_MAX = 65_536
_AT_ONCE = 64  # frames of one port before it is the next one's turn
_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def network_of(pid: int) -> Iterator[None]:
    """This thread is in the network of that process; sockets that it opens stay there."""
    own, other = (
        os.open(path, os.O_RDONLY) for path in ("/proc/thread-self/ns/net", f"/proc/{pid}/ns/net")
    )
    try:
        _enter(other)
        try:
            yield
        finally:
            _enter(own)
    finally:
        os.close(own)
        os.close(other)


def _enter(namespace: int) -> None:
    if _libc.setns(namespace, _CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "setns")


def mac(port: int) -> str:
    """Of the machine at a port: the switch need not learn who is where."""
    return f"02:00:00:00:00:{port:02x}"


@dataclass(slots=True)
class Link:
    """Between two machines, both ways."""

    is_cut: bool = False
    delay_s: float = 0.0  # each way
    loss: float = 0.0  # the share of frames
    lost: int = 0  # frames so far


@dataclass(slots=True)
class Switch:
    """Ports by their numbers; the links of all pairs of them are whole at first."""

    draw: random.Random
    links: dict[frozenset[int], Link] = field(default_factory=dict)
    _ports: dict[int, int] = field(default_factory=dict)  # number -> TAP
    _numbers: dict[int, int] = field(default_factory=dict)  # TAP -> number
    _waiting: list[tuple[float, int, int, bytes]] = field(default_factory=list)
    _order: Iterator[int] = field(default_factory=count)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _poll: select.epoll = field(default_factory=select.epoll)
    _is_closed: bool = False

    def link(self, one: int, other: int) -> Link:
        return self.links.setdefault(frozenset((one, other)), Link())

    def plug(self, number: int, pid: int) -> None:
        """A new device `eth0` in the network of *pid* is at this port."""
        with network_of(pid):
            tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                fcntl.ioctl(tap, _TUNSETIFF, struct.pack("16sH22x", b"eth0", _TAP | _NO_PI))
            except OSError:
                os.close(tap)
                raise
        with self._lock:
            self._ports[number], self._numbers[tap] = tap, number
            self._poll.register(tap, select.EPOLLIN)

    def unplug(self, number: int) -> None:
        """The device is gone, and so is every frame on its way there; no error if none was."""
        with self._lock:
            if (tap := self._ports.pop(number, None)) is None:
                return
            del self._numbers[tap]
            self._poll.unregister(tap)
            os.close(tap)

    def serve(self) -> None:
        while not self._is_closed:
            ready = self._poll.poll(self._pause_s())
            with self._lock:
                for tap, _ in ready:
                    self._take(tap)
                self._give()

    def close(self) -> None:
        """Ends `serve`."""
        self._is_closed = True
        for number in list(self._ports):
            self.unplug(number)

    def _pause_s(self) -> float:
        """Until the next frame is due; never long, so that `close` is seen."""
        if not self._waiting:
            return 0.1
        return min(0.1, max(0.0, self._waiting[0][0] - time.monotonic()))

    def _take(self, tap: int) -> None:
        """What a machine has sent, to whom it is for."""
        for _ in range(_AT_ONCE):
            number = self._numbers.get(tap)
            try:
                frame = os.read(tap, _FRAME_BYTES_MAX) if number is not None else b""
            except OSError:  # nothing more, or the device is down
                return
            if number is None:
                return
            is_for_all = frame[0] & 1
            for target in list(self._ports) if is_for_all else [frame[5]]:
                if target != number:
                    self._carry(number, target, frame)

    def _carry(self, source: int, target: int, frame: bytes) -> None:
        link = self.link(source, target)
        if link.is_cut or (link.loss and self.draw.random() < link.loss):
            link.lost += 1
        elif link.delay_s:
            due = time.monotonic() + link.delay_s
            heapq.heappush(self._waiting, (due, next(self._order), target, frame))
        else:
            self._send(target, frame)

    def _give(self) -> None:
        now = time.monotonic()
        while self._waiting and self._waiting[0][0] <= now:
            _, _, target, frame = heapq.heappop(self._waiting)
            self._send(target, frame)

    def _send(self, target: int, frame: bytes) -> None:
        if (tap := self._ports.get(target)) is not None:
            with suppress(OSError):  # its device is not up yet, or has no room: a lost frame
                os.write(tap, frame)


def switch_missing() -> str:
    """Why there can be none here; empty if there can be."""
    if os.geteuid() != 0:
        return "network namespaces of their own need root"
    if not Path("/dev/net/tun").exists():
        return "there is no /dev/net/tun: the kernel has no TAP devices"
    return ""
