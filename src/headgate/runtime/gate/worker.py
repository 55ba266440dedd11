"""The main module of a gate's worker process."""

import sys
from typing import Any

from headgate.observe import State
from headgate.runtime.gate.process import GateConfiguration, GateProcess
from headgate.runtime.ipc import Configure, Shutdown, StateQuery
from headgate.runtime.stderr import write_line
from headgate.runtime.worker_main import Send, run_worker

__all__ = ["main"]


def main() -> int:
    """Run a gate until its supervisor, or a SIGTERM, stops it."""
    return run_worker(Configure[GateConfiguration] | StateQuery | Shutdown, _GateWorker)


class _GateWorker:
    """One gate that shares its listening address and its master with other workers."""

    def __init__(self, configuration: GateConfiguration, send: Send) -> None:  # noqa: ARG002  # a gate's worker sends nothing else
        self._gate = GateProcess(configuration.tree, bus=configuration.bus, is_worker=True)

    @property
    def drain_timeout(self) -> float:
        return self._gate.tree.gate.drain

    async def start(self) -> None:
        await self._gate.start()

    async def state(self, *, whole: bool) -> State:
        return await self._gate.state(whole=whole)

    async def reload(self, configuration: GateConfiguration) -> None:
        await self._gate.reload(configuration.tree)

    def on_message(self, message: Any) -> None:
        """Ignore it: a gate's supervisor sends nothing else."""

    async def drain(self, seconds: float) -> None:
        await self._gate.drain(seconds)

    async def close(self) -> None:
        await self._gate.close()

    def log(self, message: str) -> None:
        write_line(message)


if __name__ == "__main__":
    sys.exit(main())
