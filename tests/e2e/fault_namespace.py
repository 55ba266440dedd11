"""A network between gates and their master that drops every packet for a while, as when a cable is pulled.

`run_dropped` runs this module in a network namespace of its own; the master is in another one.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from tests.e2e.fault_cases import Fault, Outcome, Times, nothing, run_fault
from tests.e2e.fault_load import LoadPlan, Sample
from tests.e2e.fault_system import Shape, System
from tests.servers import ROOT

UNSHARE = ("unshare", "--net")
NAME = "partition, packets dropped"
OURS, THEIRS = "10.77.0.1", "10.77.0.2"
PATIENCE = 60.0  # seconds; only ever reached by a failing test
DROP_ALL = ("root", "tbf", "rate", "8bit", "burst", "1", "limit", "1")
"""A queue that holds one byte, so that it drops every packet."""


def is_permitted() -> bool:
    """Return whether this user may create such namespaces."""
    trial = "ip link add one type veth peer name other && tc qdisc add dev one " + " ".join(DROP_ALL)
    try:
        tried = subprocess.run([*UNSHARE, "sh", "-c", trial], capture_output=True, timeout=PATIENCE, check=False)
    except FileNotFoundError:
        return False
    return tried.returncode == 0


def run(*words: str) -> None:
    """Run a command that has to succeed."""
    subprocess.run(words, check=True)


class Network:
    """The namespace of this process and one of the master, joined by a bridge in a third one that can drop packets."""

    def __init__(self, bridge: int, master: int) -> None:
        self._inside_bridge = enter(bridge)
        self.inside_master = enter(master)
        run(*self._inside_bridge, "ip", "link", "add", "joint", "type", "bridge")
        run(*self._inside_bridge, "ip", "link", "set", "joint", "up")
        self._join((), "ours", OURS, bridge)
        self._join(self.inside_master, "theirs", THEIRS, bridge)
        run("ip", "link", "set", "lo", "up")

    def _join(self, inside: tuple[str, ...], name: str, address: str, bridge: int) -> None:
        """Give a namespace an interface whose other end is a port of the bridge."""
        run(*inside, "ip", "link", "add", name, "type", "veth", "peer", "name", name, "netns", str(bridge))
        run(*inside, "ip", "address", "add", f"{address}/24", "dev", name)
        run(*inside, "ip", "link", "set", name, "up")
        run(*self._inside_bridge, "ip", "link", "set", name, "master", "joint", "up")

    def drop(self, _system: System) -> None:
        """Drop every packet. Not in the namespaces of the ends: TCP is informed of packets dropped there."""
        for name in ("ours", "theirs"):
            run(*self._inside_bridge, "tc", "qdisc", "add", "dev", name, *DROP_ALL)

    def restore(self, _system: System) -> None:
        """Drop no more packets."""
        for name in ("ours", "theirs"):
            run(*self._inside_bridge, "tc", "qdisc", "delete", "dev", name, "root")


def enter(process: int) -> tuple[str, ...]:
    """Return what a command begins with that runs in the namespace of a process."""
    return ("nsenter", f"--net=/proc/{process}/ns/net")


@contextmanager
def namespace() -> Iterator[int]:
    """Create a namespace; return the id of a process in it, which keeps it until the end of the block."""
    with subprocess.Popen(["unshare", "--net", "sh", "-c", "echo && exec cat"], stdin=-1, stdout=-1) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        try:
            yield holder.pid
        finally:
            holder.kill()


class _Report(msgspec.Struct):
    """An outcome on its way to the process that asked for it."""

    samples: list[Sample]
    began: float
    ending: float
    ended: float
    limited: float


def run_dropped(folder: Path, times: Times, plan: LoadPlan) -> Outcome:
    """Run a partition in which every packet is dropped. Needs the rights that `is_permitted` tests."""
    words = [str(folder), *(msgspec.json.encode(each).decode() for each in (times, plan))]
    command = [*UNSHARE, sys.executable, "-m", "tests.e2e.fault_namespace", *words]
    done = subprocess.run(
        command,
        capture_output=True,
        cwd=ROOT,
        timeout=PATIENCE + times.before + times.during + times.after,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    report = msgspec.json.decode(done.stdout, type=_Report)
    return Outcome(
        Fault(NAME, nothing, nothing), report.samples, [], report.began, report.ending, report.ended, report.limited
    )


def main(folder: Path, times: Times, plan: LoadPlan) -> None:
    """Run the partition, with the gates in the namespace of this process, and print the report."""
    with namespace() as bridge, namespace() as master:
        network = Network(bridge, master)
        shape = Shape(master_host=THEIRS, master_prefix=network.inside_master)
        outcome = run_fault(Fault(NAME, network.drop, network.restore, shape), folder, times, plan)
    report = _Report(list(outcome.samples), outcome.began, outcome.ending, outcome.ended, outcome.limited)
    sys.stdout.buffer.write(msgspec.json.encode(report))


if __name__ == "__main__":
    main(
        Path(sys.argv[1]),
        msgspec.json.decode(sys.argv[2], type=Times),
        msgspec.json.decode(sys.argv[3], type=LoadPlan),
    )
