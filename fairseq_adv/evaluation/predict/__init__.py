"""From checkpoints to prediction files: leaderboard formats, ensembles and GLUE's submission."""
