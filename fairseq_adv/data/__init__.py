"""Readers that check what they read; tokenising and binarising; retrieval.

What belongs here turns people's files into fairseq's data folders, before any training. A mistake in a file
is a :class:`fairseq_adv.data.errors.DataError` that names the file, the line and the mend. Nothing here knows
a model, a criterion or a task. Importing this package imports nothing.
"""
