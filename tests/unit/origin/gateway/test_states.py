"""The tables of states: complete, and without a state that cannot be reached or left."""

from collections.abc import Mapping
from enum import Enum
from typing import Any

import pytest

from headgate.origin.gateway import states

TABLES = {name: table for name, table in vars(states).items() if name.endswith("_TRANSITIONS")}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_every_state_and_every_event_and_leads_from_the_first_state_to_all(name: str) -> None:
    table: Mapping[Any, Mapping[Any, Any]] = TABLES[name]
    first = next(iter(table))
    all_states: type[Enum] = type(first)
    assert list(table) == list(all_states)
    events = {event for row in table.values() for event in row}
    assert events == set(type(next(iter(events))))
    reached, more = {first}, {first}
    while more:
        more = {target for state in more for target in table[state].values()} - reached
        reached |= more
    assert reached == set(all_states)
