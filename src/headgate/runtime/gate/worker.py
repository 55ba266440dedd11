"""The main module of a gate's worker process."""

import sys

from headgate.runtime.gate.process import GateConfiguration, GateProcess
from headgate.runtime.ipc import Configure, Shutdown, StateQuery
from headgate.runtime.worker_main import run_worker


def main() -> int:
    """Run a gate until its supervisor, or a SIGTERM, stops it."""
    return run_worker(
        Configure[GateConfiguration] | StateQuery | Shutdown, lambda configuration, _send: GateProcess(configuration)
    )


if __name__ == "__main__":
    sys.exit(main())
