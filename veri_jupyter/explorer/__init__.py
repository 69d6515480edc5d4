"""The plan explorer: a form, a text and a picture of one spec."""
