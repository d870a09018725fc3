"""Readers that check their input, and the data sets of the tasks.

This package turns users' files into what fairseq trains on. A mistake in a file raises
:class:`fairseq_adv.data.errors.DataError`, which names the file, the line and the fix. Nothing here depends
on a model, a criterion or a task. Importing this package imports nothing else.
"""
