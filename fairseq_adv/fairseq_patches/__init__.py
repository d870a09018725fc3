"""Every change to fairseq 0.12.2 itself that a criterion needs: one file each, with its reason and its place.

A patch replaces a function of fairseq's for this process, once. What is trained with a criterion that did not
ask for it is trained as before.
"""
