"""The rate limit quota service of a master: Envoys report what they admitted, and get assignments (extra `envoy`)."""
