"""Where a bundle's bytes come from and go to: paths, memory, open files, temporary files."""
