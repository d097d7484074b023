"""Methods against each other: cells of a grid, their figures, a leaderboard, and what predicts it without truth."""

CANDIDATES = ("auto", "ce", "gce", "elr", "sop", "early_stop(ce)")  # of `compare`, unless it is told others
