"""Attacks that change a text's words: what they try, what they may not do, and how they search."""
