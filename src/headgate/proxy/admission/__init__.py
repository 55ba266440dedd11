"""Deciding on CONNECT requests: who may have a tunnel, to which host, at which address, with the origin's consent.

`decide` asks the questions in order. Each of the others answers one: `authority` (which host), `clients` and
`shared_memory` (how many), `replay_store` (is the token new), `resolver` and `destinations` (at which address),
`advice_service` and `remote_advice` (does the origin want it).
"""
