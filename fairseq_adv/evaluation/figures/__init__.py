"""Flooding-X's figures: accordance over updates, score against flood level, loss against noise."""
