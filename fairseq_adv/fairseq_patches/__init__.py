"""Every change to fairseq 0.12.2 itself: one file each, with its reason and the place in fairseq.

A patch replaces a function of fairseq's for this process, once. Runs with other criterions are as before.
"""
