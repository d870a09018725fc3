"""Readers that check their input, and the data sets of the tasks.

This package turns users' files into what fairseq trains on. Every function here refuses a mistake in a file
with :class:`fairseq_adv.data.errors.DataError`, which names the file, the line and the fix; only the
documented ones list it. Nothing here depends on a model, a criterion or a task. Importing this package
imports nothing else.
"""
