"""What a throttle between processes is made of: the rows, a mirror of them in memory, and the file they live in."""

__all__: list[str] = []
