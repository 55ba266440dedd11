"""Defaults that the documentation names are those of the code."""

import inspect
import re
from pathlib import Path

import pytest

from headgate.config import Configuration
from headgate.limit import Gatekeeper
from headgate.token.replay_table import MAX_TOKENS

DOCS = Path(__file__).parents[2] / "docs"


def default(call, name):
    return inspect.signature(call).parameters[name].default


@pytest.mark.parametrize(
    ("page", "sentence", "values"),
    [
        (
            "how-to/protect-a-fastapi-app.md",
            r"up to `max_delay` seconds \(([\d,]+)\)",
            [
                default(Gatekeeper, "max_delay"),
                default(Gatekeeper.embedded, "max_delay"),
                Configuration().gate.max_delay,
            ],
        ),
        (
            "how-to/protect-a-fastapi-app.md",
            r"at most `max_delayed` \(([\d,]+)\)",
            [
                default(Gatekeeper, "max_delayed"),
                default(Gatekeeper.embedded, "max_delayed"),
                Configuration().gate.max_delayed,
            ],
        ),
        ("reference/token.md", r"table in memory, for ([\d,]+) tokens", [MAX_TOKENS]),
    ],
)
def test_documented_defaults_are_those_of_the_code(page, sentence, values):
    (said,) = re.findall(sentence, (DOCS / page).read_text(encoding="utf-8"))
    assert values == [int(said.replace(",", ""))] * len(values)
