"""Programs behind decisions and the figures in docs/: what they measure or simulate, and how."""
