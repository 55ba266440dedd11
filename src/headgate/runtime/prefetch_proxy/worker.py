"""The main module of a prefetch proxy's worker process."""

import sys
from contextlib import ExitStack
from typing import Any

from headgate.proxy.admission.remote_advice import AdviceReply, RemoteAdvice
from headgate.runtime.prefetch_proxy.log_setup import open_log
from headgate.runtime.prefetch_proxy.messages import FromSupervisor, ProxyConfiguration
from headgate.runtime.prefetch_proxy.process import ProxyProcess
from headgate.runtime.worker_main import Send, run_worker


def main() -> int:
    """Run a proxy until its supervisor, or a SIGTERM, stops it."""
    with ExitStack() as closing:
        return run_worker(FromSupervisor, lambda configuration, send: _ProxyWorker(configuration, send, closing))


class _ProxyWorker(ProxyProcess):
    """One proxy of several, which gets advice from the supervisor."""

    def __init__(self, configuration: ProxyConfiguration, send: Send, closing: ExitStack) -> None:
        self._remote_advice = RemoteAdvice(send)
        super().__init__(configuration, self._remote_advice, closing.enter_context(open_log()))

    def on_message(self, message: Any) -> None:
        if isinstance(message, AdviceReply):
            self._remote_advice.receive(message)
        else:
            self._remote_advice.close()


if __name__ == "__main__":
    sys.exit(main())
