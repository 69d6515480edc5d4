"""The files that the notebook, the launcher and the ranks share: their paths, formats, readers and writers."""
