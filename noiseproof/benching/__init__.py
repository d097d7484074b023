"""Methods against each other: cells of a grid, their figures, a leaderboard, and what predicts it without truth."""
