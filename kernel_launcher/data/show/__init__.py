"""Rows as a person sees them: token by token, with their marks, as values and as text."""
