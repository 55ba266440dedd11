"""The event-driven world: clients send requests, a law admits, queues or refuses them, and a station serves them.

Modules, from the top: `world` wires the parts of one run; `clients` send requests; `gate` applies what a law decides;
`station` serves; `meter` records signals; `laws` holds the protocol of a law and the built-in ones; `timeline` orders
events; `profile` and `service` hold loads over time and service times; `settings` is the scenario file.
"""
