"""The lab: the real cores in simulated time."""
