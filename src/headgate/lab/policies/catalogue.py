"""Policies by name: those of the package, and classes of your own."""

import math
from collections.abc import Mapping
from typing import Final

from headgate.config.toml_reader import nearest_key
from headgate.errors import ConfigurationError, SimulationError
from headgate.lab.policies import Policy
from headgate.lab.user_class import is_user_class, load_user_class

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
    if not is_user_class(place):
        near = nearest_key(name, [*POLICIES, "module:Class", "file.py:Class"])
        raise ConfigurationError(f"unknown policy {name!r}; {near.replace('the keys are', 'expected one of')}")
    policy = load_user_class(place, folder)
    if not issubclass(policy, Policy):
        raise ConfigurationError(f"policy {name!r} must be a class derived from headgate.lab.policies.Policy")
    return policy if name in POLICIES else _checked(policy)


def _checked(policy: type[Policy]) -> type[Policy]:
    """Return a user's class with methods that raise `SimulationError` for a value that is not allowed.

    NaN, for example, is not later than any instant, so it would permit every request.
    """

    class Checked(policy):  # type: ignore[misc,valid-type]  # a base class that is known at run time only
        def release(self, *, now: float) -> float:
            value: object = super().release(now=now)
            if not isinstance(value, int | float) or math.isnan(value):
                raise SimulationError(f"{policy.__name__}.release returned {value!r}; expected an instant in seconds")
            return value

        def pause(self, failures: int, *, now: float) -> float | None:
            value: object = super().pause(failures, now=now)
            if value is not None and not (isinstance(value, int | float) and value >= 0):
                raise SimulationError(
                    f"{policy.__name__}.pause returned {value!r}; expected None or a non-negative number of seconds"
                )
            return value

    Checked.__name__ = policy.__name__
    return Checked
