"""The sidecar: a gatekeeper beside nginx or HAProxy, which decide on requests by its holds and report their verdicts.

Each server has a data plane, which passes holds to the server and receives its verdicts, and a module that writes a
configuration for the server.
"""
