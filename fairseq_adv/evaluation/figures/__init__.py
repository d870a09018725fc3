"""Flooding-X's figures: accordance over the updates, score over flood level, loss over noise."""
