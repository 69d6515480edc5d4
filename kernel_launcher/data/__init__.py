"""From rows to token ids and labels, without torch.

A file or a notebook's rows (``source``, ``snapshot``) -> one normalised example a row (``formats``, ``messages``)
-> text with its trained spans (``mark``) -> token ids and labels (``encode``) -> an Arrow file (``prepare``).
``check`` runs the first two steps alone, in the cell, before anything starts. ``lint`` looks at every row on the way.
"""
