"""The lab: the throttle, traffic advice, gatekeepers and limits of headgate in simulated worlds.

`published` has the two simulations of anti-ddos-throttling.txt. `events` simulates single requests at a station,
`rates` numbers of requests over hours; `scenario` reads their files, and `runner` runs them. Time is simulated and
chance is seeded: the same scenario and seed give the same bytes. README.md says how to use it.
"""
