"""The main module of a prefetch proxy's worker process."""

import sys
from contextlib import ExitStack
from typing import Any

from headgate.proxy.admission.remote_advice import AdviceReply, RemoteAdvice
from headgate.runtime.prefetch_proxy.messages import FromSupervisor, ProxyConfiguration, WorkerState
from headgate.runtime.prefetch_proxy.process import ProxyProcess
from headgate.runtime.prefetch_proxy.resources import open_log
from headgate.runtime.worker_main import Send, run_worker

__all__ = ["main"]


def main() -> int:
    """Run a proxy until its supervisor, or a SIGTERM, stops it."""
    return run_worker(FromSupervisor, _ProxyWorker)


class _ProxyWorker:
    """One proxy that shares its listening addresses with other workers, and gets advice from their supervisor."""

    def __init__(self, configuration: ProxyConfiguration, send: Send) -> None:
        self._configuration = configuration
        self._closing = ExitStack()
        self._lines = self._closing.enter_context(open_log())
        self._advising = RemoteAdvice(send)
        self._process = ProxyProcess(configuration.settings, configuration.shared, self._advising, self._lines)

    @property
    def drain_timeout(self) -> float:
        return self._configuration.settings.drain

    async def start(self) -> None:
        await self._process.start(addresses=self._configuration.addresses)

    async def state(self, *, whole: bool) -> WorkerState:  # noqa: ARG002  # nothing of it takes long
        return self._process.state

    async def reload(self, configuration: ProxyConfiguration) -> None:  # noqa: ARG002  # only files are read again
        self._process.reload()

    def on_message(self, message: Any) -> None:
        """Pass the supervisor's responses about advice on, or that it is gone."""
        if isinstance(message, AdviceReply):
            self._advising.hear(message)
        else:
            self._advising.close()

    async def drain(self, seconds: float) -> None:
        await self._process.drain(seconds)

    async def close(self) -> None:
        await self._process.drain(0)
        self._closing.close()

    def log(self, message: str) -> None:
        self._lines.say(message)


if __name__ == "__main__":
    sys.exit(main())
