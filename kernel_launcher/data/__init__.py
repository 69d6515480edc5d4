"""From rows to token ids and labels, without torch.

``rows``: a file or a notebook's rows -> one normalised example a row. ``chat``: examples -> text with trained spans.
``training``: text -> token ids and labels, and an Arrow file of all rows. ``lint`` looks at every row on the way.
``check`` reads and lints alone, in the cell, before anything starts; ``show`` is what a person sees of it all.
"""
