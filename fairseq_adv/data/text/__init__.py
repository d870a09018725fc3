"""Rows of ids, whatever they came from: fairseq's files on disk, texts put together, mini-batches."""
