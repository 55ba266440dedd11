"""Policies by name: those of the package, and classes of your own."""

import importlib
import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from headgate.errors import ConfigurationError
from headgate.lab.policies import Policy

POLICIES: Final[Mapping[str, str]] = {
    "none": "headgate.lab.policies:Policy",
    "draft": "headgate.lab.policies.throttle:Draft",
    "chromium": "headgate.lab.policies.throttle:Chromium",
    "full_jitter": "headgate.lab.policies.full_jitter:FullJitter",
    "retry_budget": "headgate.lab.policies.retry_budget:RetryBudget",
    "sre": "headgate.lab.policies.sre:AdaptiveThrottling",
    "advice": "headgate.lab.policies.advice:Advice",
    "together": "headgate.lab.policies.together:Together",
}
"""The policies of the package: their module and class."""


def find_policy(name: str, folder: str = "") -> type[Policy]:
    """Return the class of a policy: a name of the package, `module:Class`, or `file.py:Class` relative to `folder`.

    Raises `ConfigurationError` for what is not a policy.
    """
    place = POLICIES.get(name, name)
    module_name, colon, class_name = place.partition(":")
    if not colon:
        raise ConfigurationError(
            f"unknown policy {name!r}; expected one of {', '.join(POLICIES)}, or module:Class or file.py:Class"
        )
    try:
        if module_name.endswith(".py"):
            found = _load(Path(folder) / module_name)
        else:
            found = importlib.import_module(module_name)
        policy = getattr(found, class_name)
    except (ImportError, OSError, SyntaxError, AttributeError) as error:
        raise ConfigurationError(f"policy {name!r}: {error}") from None
    if not (isinstance(policy, type) and issubclass(policy, Policy)):
        raise ConfigurationError(f"policy {name!r} must be a class derived from headgate.lab.policies.Policy")
    return policy


def _load(path: Path) -> object:
    """Import the file at a path; the same file is imported once."""
    name = f"headgate_policy_{path.resolve()}"
    if name in sys.modules:
        return sys.modules[name]
    specification = importlib.util.spec_from_file_location(name, path)
    if specification is None or specification.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    try:
        specification.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
