"""Worlds of up to two million agents: the tick world's arithmetic on arrays, compiled by numba (extra `lab`)."""
