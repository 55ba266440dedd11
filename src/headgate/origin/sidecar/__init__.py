"""The sidecar: a gatekeeper beside nginx or HAProxy, which decide on requests by its holds and report their verdicts.

Each server has a data plane, which passes holds to the server and receives its verdicts, and a module that writes a
configuration for the server: `nginx_lua` and `auth_request` with `nginx_conf`, `haproxy` with `haproxy_conf`; Envoy has
only `envoy_conf`. What they share is in `data_plane` and `site`.

A subrequest of nginx's auth_request touches four files: `data_plane` accepts its connection, `auth_request` reads the
head and writes the answer, `headgate.origin.identify` finds the client, and `headgate.limit.gatekeeper` decides. A
rejection is written by a fifth, `headgate.origin.response`. A request that nginx with Lua or HAProxy has decided on
touches `data_plane`, `nginx_lua` or `haproxy`, and the gatekeeper, to which it is reported.
"""
