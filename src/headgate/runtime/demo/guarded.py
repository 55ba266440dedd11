"""`headgate` as a child that ends with its parent: `python -m headgate.runtime.demo.guarded serve …`.

The parent keeps the other end of its standard input open and writes nothing; the end of that input stops the program,
as SIGTERM does.
"""

import os
import runpy
import signal
import sys
import threading
import time
from typing import Final

_DRAIN: Final = 3.0
"""Seconds to stop gracefully."""


def _watch() -> None:
    while os.read(sys.stdin.fileno(), 1_024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_DRAIN)
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_watch, name="guard", daemon=True).start()
    sys.argv[0] = "headgate"
    runpy.run_module("headgate", run_name="__main__")
