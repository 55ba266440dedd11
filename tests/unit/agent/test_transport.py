"""The marks of a request."""

import re

import pytest

from headgate.agent.transport import is_interactive
from headgate.errors import ConfigurationError


@pytest.mark.parametrize(
    ("marks", "interactive"),
    [(None, False), ({}, False), ({"interactive": True}, True), ({"interactive": False}, False)],
)
def test_interactive_option_is_read(marks, interactive):
    assert is_interactive(marks) is interactive


@pytest.mark.parametrize("marks", [True, "interactive", ["interactive"], {"interactive": 1}, {"interative": True}])
def test_invalid_options_are_refused(marks):
    with pytest.raises(ConfigurationError, match=re.escape("expected {'interactive': True} or False")):
        is_interactive(marks)
