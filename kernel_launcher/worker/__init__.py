"""What each rank runs: one process a GPU, started by the launcher, trained by TRL; torch is imported here only."""
