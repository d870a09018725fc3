"""Rows of ids from any source: fairseq's files on disk, texts put together from parts, mini-batches."""
