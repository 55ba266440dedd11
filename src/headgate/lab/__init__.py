"""The lab: the real throttle, advice, gatekeepers and masters in simulated worlds, compared under several policies.

A scenario file (`lab/scenarios/*.toml`, or your own) describes a world, the agents and origins in it, the policies to
compare, and the ranges in which the results must lie. `headgate simulate` runs it, once for each policy and seed.

Modules, from the top: `runner` runs a scenario in several processes; `scenario_file` reads TOML; `ticks`, `events`
and `rates` are the worlds and `kernel` a vectorised copy of the first; `policies` holds what agents and origins can do;
`scenario`, `results` and `chance` hold the values that they share. Time is simulated and chance is seeded: the same
scenario and seed give the same bytes.
"""

from headgate.lab.results import Result, Run, Series
from headgate.lab.runner import run_one, run_scenario
from headgate.lab.scenario import Scenario
from headgate.lab.scenario_file import find, parse_scenario, read_scenario

__all__ = [
    "Result",
    "Run",
    "Scenario",
    "Series",
    "find",
    "parse_scenario",
    "read_scenario",
    "run_one",
    "run_scenario",
]
