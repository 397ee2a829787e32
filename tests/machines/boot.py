"""The first process of a machine: gives it a disk of its own, and lives as long as the machine.

    unshare --net --mount --pid --uts --fork --kill-child python -I boot.py JSON

What the machine can write is its own, in memory, and empty at the start; the rest it can only read.
Its standard input is a pipe whose other end the tests hold. When they end, however they end, the
pipe is closed; this process ends, and with it the kernel ends every process of the machine.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

OWN = ("/run", "/tmp", "/var/tmp", "/dev/shm")
KEPT = Path("/run/kept")
PSEUDO = {"proc", "sysfs", "devpts", "mqueue", "cgroup", "cgroup2", "securityfs", "debugfs"}
NETWORK = {
    "ipv6/conf/all/disable_ipv6": "1",
    "ipv6/conf/default/disable_ipv6": "1",
    # A peer that is gone is given up after some ten seconds, not after fifteen minutes.
    "ipv4/tcp_retries2": "5",
    "ipv4/tcp_syn_retries": "2",
}


def main(asked: dict[str, Any]) -> None:
    outside = Path("/proc/self").readlink()  # as the tests know this process
    _own_disk([Path(each) for each in asked["visible"]], [Path(each) for each in asked["shared"]])
    _own_network(asked["name"], asked["hosts"])
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel buries orphans
    sys.stdout.write(f"{outside}\n")
    sys.stdout.flush()
    sys.stdin.read()


def _own_disk(visible: list[Path], shared: list[Path]) -> None:
    _mount("--make-rprivate", "/")
    _mount("-t", "tmpfs", "tmpfs", "/run")
    for number, folder in enumerate((*visible, *shared)):
        (KEPT / str(number)).mkdir(parents=True)
        _mount("--rbind", str(folder), str(KEPT / str(number)))
    for folder in map(Path, OWN[1:]):
        if folder.is_dir():
            _mount("-t", "tmpfs", "-o", "mode=1777", "tmpfs", str(folder))
    for number, folder in enumerate((*visible, *shared)):
        folder.mkdir(parents=True, exist_ok=True)
        _mount("--move", str(KEPT / str(number)), str(folder))
    _mount("-t", "proc", "proc", "/proc")
    _mount("-t", "sysfs", "sysfs", "/sys")
    for point, kind in _mounts():
        is_writable = point in (*OWN, *map(str, shared))
        if kind not in PSEUDO and not is_writable and Path(point).is_mount():
            _mount("-o", "remount,bind,ro", point)


def _mounts() -> list[tuple[str, str]]:
    """Where, and of which kind; of several on one point the last is the one that is seen."""
    found = {}
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, point, kind, *_ = line.split(" ")
        found[point.encode().decode("unicode_escape")] = kind
    return list(found.items())


def _own_network(name: str, hosts: dict[str, str]) -> None:
    socket.sethostname(name)
    known = "".join(f"{address} {each}\n" for each, address in hosts.items())
    Path("/run/hosts").write_text(f"127.0.0.1 localhost\n{known}")
    _mount("--bind", "/run/hosts", "/etc/hosts")
    for setting, value in NETWORK.items():
        path = Path("/proc/sys/net") / setting
        if path.exists():
            path.write_text(value)


def _mount(*arguments: str) -> None:
    done = subprocess.run(
        ["mount", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"mount {' '.join(arguments)}: {done.stderr}")


if __name__ == "__main__":
    os.umask(0o022)
    main(json.loads(sys.argv[1]))
