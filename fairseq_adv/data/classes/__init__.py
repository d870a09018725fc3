"""Texts with classes or numbers, from files of any origin, for ``text_classification``."""
