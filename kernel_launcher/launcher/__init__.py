"""Who starts a job and looks after it: ``client`` in the notebook, ``supervisor`` in the detached process."""
