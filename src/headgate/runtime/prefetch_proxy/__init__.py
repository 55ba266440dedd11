"""The prefetch proxy: one process, or a supervisor of several workers."""
