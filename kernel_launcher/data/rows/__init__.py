"""Rows as they come: files, formats, the examples that they are, and what is wrong with those that are none."""
