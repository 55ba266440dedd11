"""A Node.js script that answers tasks: one line of JSON in, one line of JSON out."""

import json
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests import servers

SCRIPTS = Path(__file__).parent / "node"


class NodeProcess:
    """Runs a script of the folder `node` with the path of an npm module; a context manager that ends it."""

    def __init__(self, script: str, module: str) -> None:
        command = [servers.find_program("node"), SCRIPTS / script, servers.NODE_MODULES / module]
        self._process = subprocess.Popen(
            list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()

    def __call__(self, task: str, **arguments: Any) -> Any:
        """Return the answer to a task; raises `ValueError` with the script's error."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"task": task, **arguments}, default=str) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise ValueError(answer["error"])
        return answer["answer"]
