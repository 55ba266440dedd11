"""The agent's side: what a program that sends requests puts between itself and the network."""

__all__: list[str] = []
