"""Every change to fairseq 0.12.2 itself, by what it touches, each with its reason and its place in fairseq.

A patch replaces a function of fairseq once per process. Runs with other criterions behave as before.
"""
