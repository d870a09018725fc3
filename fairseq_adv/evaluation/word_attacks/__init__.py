"""Attacks that change a text's words: their candidates, their constraints, and their search."""
