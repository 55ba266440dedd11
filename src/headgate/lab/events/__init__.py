"""The event-driven world: clients send requests, a law admits, queues or refuses them, and a station serves them.

Modules, from the top: `world` wires the parts of one run; `clients` send requests; `gate` applies what a law decides;
`station` serves; `meter` records signals; `settings` is the scenario file; `catalogue` finds laws by name; `laws` has
the protocol of a law and the simplest ones; `concurrency_law` is the concurrency limit of the cores; `bus_law` is the
law of gatekeepers and a master on a simulated `bus`; `timeline` orders events; `service` has service times, and
`lab.profile` loads over time.
"""
