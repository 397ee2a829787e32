"""Machines that share nothing but a network, made of the kernel's namespaces; and their faults.

A machine has a network, a disk, processes and a name of its own. It reads the source tree, Python
and Java where they are; all it can write is in its own memory and gone when it is killed. Addresses
are 10.77.0.N, in namespaces without a name: nothing of them is visible to this machine's network,
and nothing is left of them when this process ends, even by SIGKILL (see boot.py).
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

from tests.machines.boot import OWN
from tests.machines.switch import Link, Switch, mac, network_of, switch_missing
from tests.servers.tcp_proxy import TcpProxy, tcp_proxy

ROOT = Path(__file__).parents[2]
BOOT = Path(__file__).parent / "boot.py"
NAMESPACES = ("--net", "--mount", "--pid", "--uts")
_TOOLS = ("unshare", "nsenter", "mount", "ip")
_STOPPED = "TXZ"


def machines_missing() -> str:
    """Why no machine can be made here; empty if it can."""
    if missing := [tool for tool in _TOOLS if shutil.which(tool) is None]:
        return f"no {', '.join(missing)} here (util-linux, iproute2: `make system`)"
    if reason := switch_missing():
        return reason
    command = ["unshare", *NAMESPACES, "--fork", "mount", "-t", "tmpfs", "tmpfs", "/run"]
    tried = subprocess.run(command, capture_output=True, text=True, check=False)
    return f"no namespaces: {tried.stderr.strip()}" if tried.returncode else ""


@dataclass(slots=True)
class Machine:
    """One host; it is off until it is booted."""

    name: str
    port: int  # of the switch, and the last number of its address
    network: Network
    shared: Sequence[Path] = ()  # folders that outlive it
    _holder: subprocess.Popen[str] | None = None
    _init: int = 0
    _started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"10.77.0.{self.port}"

    @property
    def is_on(self) -> bool:
        return self._holder is not None

    def boot(self) -> None:
        """With an empty disk."""
        asked = {
            "name": self.name,
            "hosts": {each.name: each.address for each in self.network.machines.values()},
            "visible": [str(each) for each in self.network.visible],
            "shared": [str(each) for each in self.shared],
        }
        init = [sys.executable, "-I", str(BOOT), json.dumps(asked)]
        self._holder = subprocess.Popen(
            ["unshare", *NAMESPACES, "--fork", "--kill-child", *init],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._holder.stdout is not None
        self._init = int(self._holder.stdout.readline() or "0")
        assert self._init, f"{self.name} does not boot"
        self.network.switch.plug(self.port, self._init)
        self._configure()

    def _configure(self) -> None:
        lines = (
            "link set lo up",
            f"link set eth0 address {mac(self.port)}",
            f"addr add {self.address}/24 dev eth0",
            "link set eth0 up",
        )
        subprocess.run(
            ["nsenter", "-t", str(self._init), "-n", "ip", "-batch", "-"],
            input="\n".join(lines),
            text=True,
            check=True,
        )

    def command(self, *command: str | Path) -> list[str | Path]:
        """What runs *command* on this machine, in /tmp, when it is run here."""
        places = ("-n", "-m", "-p", "-u", "--wd=/tmp")
        return ["nsenter", "-t", str(self._init), *places, "--", *command]

    def start(
        self, *command: str | Path, log: Path, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Its output comes out here, in *log*, whatever happens to the machine."""
        with log.open("ab") as file:
            process = subprocess.Popen(
                self.command(*command),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=env,
            )
        self._started.append(process)
        return process

    def disk(self, path: str) -> Path:
        """A file of its disk, as this process reaches it."""
        return Path(f"/proc/{self._init}/root{path}")

    def connect(self, port: int) -> socket.socket:
        """To a server on this machine, past all links."""
        if not self.is_on:
            raise ConnectionRefusedError(f"{self.name} is off")
        with network_of(self._init):
            return socket.create_connection((self.address, port))

    @contextmanager
    def window(self, port: int) -> Iterator[TcpProxy]:
        """A port on this machine's own loopback that leads there."""
        with tcp_proxy(port, connect=lambda: self.connect(port)) as proxy:
            yield proxy

    def processes(self) -> list[int]:
        """Their ids as this process knows them; the first one is left out."""
        ours = Path(f"/proc/{self._init}/ns/pid").readlink()
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdecimal() and (entry / "ns" / "pid").readlink() == ours:
                    found.append(int(entry.name))
        return [pid for pid in found if pid != self._init]

    def _doors(self) -> set[int]:
        """The `nsenter` of each process that was started from here: it stops when that stops."""
        parents = {_stat(pid)[1] for pid in self.processes()}
        return {int(pid) for pid in parents if _stat(int(pid))[1] == str(os.getpid())}

    # faults

    def kill(self) -> None:
        """As if the power were cut: nobody hears of it, and the disk is gone."""
        if self._holder is None:
            return
        self.network.switch.unplug(self.port)
        doors = self._doors()
        self._holder.kill()  # its child dies with it, and the kernel kills all others
        for pid in doors:
            _signal(pid, signal.SIGCONT)
        for process in (self._holder, *self._started):
            process.wait()
        self._started.clear()
        for stream in (self._holder.stdin, self._holder.stdout):
            assert stream is not None
            stream.close()
        self._holder = None

    def kill_processes(self) -> None:
        """All of them, and the machine stays on: who is connected hears of it."""
        for pid in self.processes():
            _signal(pid, signal.SIGKILL)
        for process in self._started:
            process.wait()
        self._started.clear()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Every process stands still. The network still takes what is sent there."""
        while running := [pid for pid in self.processes() if _stat(pid)[0] not in _STOPPED]:
            for pid in running:
                _signal(pid, signal.SIGSTOP)
            time.sleep(0.01)
        try:
            yield
        finally:
            if self.is_on:
                for pid in (*self.processes(), *self._doors()):
                    _signal(pid, signal.SIGCONT)


@dataclass(slots=True)
class Network:
    """A switch, and the machines at its ports."""

    switch: Switch
    visible: Sequence[Path] = ()  # though in a folder that each machine has for itself
    machines: dict[str, Machine] = field(default_factory=dict)

    def add(self, name: str, shared: Sequence[Path] = ()) -> Machine:
        """All of them, before the first is booted: they know each other by name."""
        port = len(self.machines) + 1
        return self.machines.setdefault(name, Machine(name, port, self, shared))

    def links(self, *names: str) -> list[Link]:
        """Of one machine with another, or with all others; all links without a name."""
        ports = {self.machines[name].port for name in names}
        every = combinations((machine.port for machine in self.machines.values()), 2)
        return [self.switch.link(*pair) for pair in every if ports <= set(pair)]

    @contextmanager
    def cut(self, *names: str) -> Iterator[list[Link]]:
        """Frames vanish in both directions; connections stay, as far as both ends know."""
        yield from _changed(self.links(*names), is_cut=True)

    @contextmanager
    def slow(self, *names: str, by_s: float) -> Iterator[list[Link]]:
        """Each way takes so much longer."""
        yield from _changed(self.links(*names), delay_s=by_s)

    @contextmanager
    def lossy(self, *names: str, share: float) -> Iterator[list[Link]]:
        """So many of the frames are lost."""
        yield from _changed(self.links(*names), loss=share)


def _changed(links: list[Link], **changed: float) -> Iterator[list[Link]]:
    before = [{name: getattr(link, name) for name in changed} for link in links]
    for link in links:
        for name, value in changed.items():
            setattr(link, name, value)
    try:
        yield links
    finally:
        for link, values in zip(links, before, strict=True):
            for name, value in values.items():
                setattr(link, name, value)


@contextmanager
def running_network(*, visible: Sequence[Path] = (), seed: int = 0) -> Iterator[Network]:
    """A network without machines; those that are added are killed at the end."""
    python = (ROOT, Path(sys.prefix), Path(sys.base_prefix))
    switch = Switch(random.Random(seed))
    thread = threading.Thread(target=switch.serve, daemon=True)
    thread.start()
    network = Network(switch, [*_hidden((*python, *visible))])
    try:
        yield network
    finally:
        for machine in network.machines.values():
            machine.kill()
        switch.close()
        thread.join()


def _hidden(folders: Sequence[Path]) -> Iterator[Path]:
    """Those in a folder that each machine has for itself; of nested ones the outer."""
    found = {each for each in folders if any(each.is_relative_to(own) for own in OWN)}
    for each in found:
        if not any(each != other and each.is_relative_to(other) for other in found):
            yield each


def wait_until(true: Callable[[], bool], what: str, patience_s: float = 60) -> None:
    end = time.monotonic() + patience_s
    while not true():
        assert time.monotonic() < end, f"waited {patience_s} s for {what}"
        time.sleep(0.02)


def _stat(pid: int) -> tuple[str, str]:
    """State and parent, as /proc has them."""
    try:
        state, parent, *_ = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "X", "0"
    return state, parent


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
