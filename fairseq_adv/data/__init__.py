"""Readers that check what they read, and the data sets of the tasks.

What belongs here turns people's files into what fairseq trains on. A mistake in a file is a
:class:`fairseq_adv.data.errors.DataError` that names the file, the line and the fix. Nothing here knows a
model, a criterion or a task. Importing this package imports nothing.
"""
