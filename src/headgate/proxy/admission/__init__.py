"""Deciding on CONNECT requests: who may have a tunnel, to which host, at which address, with the origin's consent.

`decide` asks the questions in order. Each of the others answers one: `limits` (how many), `tokens` (is the token
valid and new), `authority` (which host), `destinations` (at which address), `advice_service` and `remote_advice` (does
the origin want it).
"""
