"""Conversations as text: tokenizers, chat templates, and which characters of a text are trained."""
