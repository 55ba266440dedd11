"""The gate: one process, or a supervisor of several workers."""
