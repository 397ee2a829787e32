"""Machines are what they claim: apart from each other, with faults, and gone in the end."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.machines.network import (
    ROOT,
    Machine,
    Network,
    machines_missing,
    running_network,
    wait_until,
)

PORT = 7000
ECHO = f"""
import socketserver
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(65536):
            self.request.sendall(data)
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
Server(("0.0.0.0", {PORT}), Echo).serve_forever()
"""
ASK = f"""
import socket, sys, time
started = time.monotonic()
with socket.create_connection((sys.argv[1], {PORT}), timeout=float(sys.argv[2])) as it:
    it.sendall(b"a"); assert it.recv(1) == b"a"
    for _ in range(int(sys.argv[3])):
        it.sendall(b"a" * 65536)
        left = 65536
        while left: left -= len(it.recv(left))
print(time.monotonic() - started)
"""


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    if reason := machines_missing():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("machines")
    (folder / "shared").mkdir()
    with running_network() as made:
        for name in ("one", "two", "three"):
            made.add(name, [folder / "shared"] if name == "one" else ())
        for machine in made.machines.values():
            machine.boot()
        serve(made.machines["two"], folder / "echo.log")
        yield made


def serve(machine: Machine, log: Path) -> None:
    machine.start(sys.executable, "-c", ECHO, log=log)
    wait_until(lambda: answers(machine), "the echo")


def answers(machine: Machine) -> bool:
    try:
        machine.connect(PORT).close()
    except OSError:
        return False
    return True


def ask(machine: Machine, name: str, *, patience_s: float = 10, pieces: int = 0) -> float:
    """How long two messages and their answers take; negative if there is none in time."""
    command = machine.command(sys.executable, "-c", ASK, name, str(patience_s), str(pieces))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return float(done.stdout) if done.returncode == 0 else -1.0


def shell(machine: Machine, script: str) -> str:
    done = subprocess.run(
        machine.command("sh", "-c", script), capture_output=True, text=True, check=False
    )
    return done.stdout


def test_machines_know_each_other_and_nobody_else(network: Network) -> None:
    one = network.machines["one"]
    assert ask(one, "two") >= 0
    assert shell(one, "hostname") == "one\n"
    assert shell(one, "ls /sys/class/net").split() == ["eth0", "lo"]
    routes = shell(one, "ip route").splitlines()
    assert [line.split()[0] for line in routes] == ["10.77.0.0/24"]
    # This machine has no address there, and no device.
    assert "10.77.0." not in Path("/proc/net/fib_trie").read_text()


def test_no_folder_that_one_can_write_is_seen_by_another(network: Network) -> None:
    """Every folder that is a mount, and those that programs like to write to."""
    one, two = (network.machines[name] for name in ("one", "two"))
    places = shell(one, "cut -d' ' -f2 /proc/self/mounts").split()
    places += ["/tmp", "/var/tmp", "/dev/shm", "/run", "/root", "/etc", str(Path.cwd())]
    shared = [str(each) for each in one.shared]
    written = []
    for place in dict.fromkeys(places):
        if shell(one, f"echo it > {place}/mark-of-one && cat {place}/mark-of-one"):
            written.append(place)
            assert shell(two, f"cat {place}/mark-of-one") == "", place
            assert (Path(place) / "mark-of-one").exists() == (place in shared), place
    assert set(written) == {"/tmp", "/var/tmp", "/dev/shm", "/run", *shared}


def test_processes_do_not_see_those_of_others(network: Network) -> None:
    one, two = (network.machines[name] for name in ("one", "two"))
    assert len(shell(one, "ls /proc | grep -c '^[0-9]'")) == 2  # itself and the first one
    assert two.processes()
    assert not set(one.processes()) & set(two.processes())


def test_a_cut_link_says_nothing_and_comes_back(network: Network) -> None:
    one, three = (network.machines[name] for name in ("one", "three"))
    with network.cut("one", "two") as links:
        assert ask(one, "two", patience_s=0.3) < 0
        assert ask(three, "two") >= 0
        assert links[0].lost
    assert ask(one, "two") >= 0
    with network.cut("two"):
        assert ask(one, "two", patience_s=0.3) < 0
        assert ask(three, "two", patience_s=0.3) < 0


def test_a_slow_link_delays_each_way(network: Network) -> None:
    with network.slow("two", by_s=0.05):
        assert ask(network.machines["one"], "two") >= 4 * 0.05  # SYN and back, a byte and back


def test_a_lossy_link_loses_frames_and_no_bytes(network: Network) -> None:
    with network.lossy("two", share=0.05) as links:
        assert ask(network.machines["one"], "two", pieces=10) >= 0
        assert sum(link.lost for link in links)


def test_a_paused_machine_goes_on_where_it_was(network: Network) -> None:
    one, two = (network.machines[name] for name in ("one", "two"))
    before = two.processes()
    with two.paused():
        assert ask(one, "two", patience_s=0.3) < 0
    assert ask(one, "two") >= 0
    assert two.processes() == before


def test_a_window_leads_past_all_links(network: Network) -> None:
    with (
        network.cut("two"),
        network.machines["two"].window(PORT) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port)) as way,
    ):
        way.sendall(b"it")
        assert way.recv(2) == b"it"


def test_a_killed_machine_comes_back_empty(network: Network, tmp_path: Path) -> None:
    one, two = (network.machines[name] for name in ("one", "two"))
    two.disk("/tmp/mine").write_text("it")
    pids = two.processes()
    started = subprocess.Popen(
        one.command(sys.executable, "-c", ASK, "two", "30", "100000"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_until(lambda: bool(one.processes()), "a connection")
    two.kill()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert ask(one, "two", patience_s=0.3) < 0
    two.boot()
    assert not two.disk("/tmp/mine").exists()
    assert started.wait(60) != 0, "what was connected hears that nobody knows of it any more"
    serve(two, tmp_path / "echo.log")
    assert ask(one, "two") >= 0


def test_nothing_outlives_tests_that_are_killed(network: Network) -> None:
    """The process that made the machines gets a SIGKILL."""
    script = """
import sys, time
from tests.machines.network import running_network
from pathlib import Path
with running_network() as network:
    machine = network.add("lost")
    machine.boot()
    machine.start("sleep", "1000", log=Path("/dev/null"))
    while not machine.processes(): time.sleep(0.01)
    print(machine._init, *machine.processes(), flush=True)
    time.sleep(1000)
"""
    del network  # where it cannot be had this one cannot either
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as tests:
        assert tests.stdout is not None
        pids = tests.stdout.readline().split()
        assert len(pids) == 2
        tests.kill()
    wait_until(lambda: not any(is_alive(pid.decode()) for pid in pids), "their end")


def is_alive(pid: str) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return text.rpartition(")")[2].split()[0] not in "XZ"
