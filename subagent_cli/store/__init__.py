"""Where a run lies and how a change gets there whole."""
