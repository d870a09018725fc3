"""Texts with classes or numbers, from any kind of table, for ``text_classification``."""
