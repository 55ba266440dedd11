"""A lock that another process holds."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

LOCKING = """\
import fcntl, sys
fcntl.lockf(int(sys.argv[1]), fcntl.LOCK_SH)
print("locked", flush=True)
sys.stdin.read()
"""


@contextmanager
def locked_by_another(descriptor: int) -> Iterator[None]:
    """Hold a shared lock in another process, until that is killed."""
    command = [sys.executable, "-c", LOCKING, str(descriptor)]
    with subprocess.Popen(command, pass_fds=[descriptor], stdin=-1, stdout=-1) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"locked\n"
            yield
        finally:
            process.kill()
