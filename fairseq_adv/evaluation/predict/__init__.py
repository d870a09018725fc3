"""Checkpoints in, prediction files out: the leaderboards' files, ensembles and GLUE's submission."""
