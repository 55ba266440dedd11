"""Worlds in discrete time: agents send requests, origins answer them, in ticks of one length."""
