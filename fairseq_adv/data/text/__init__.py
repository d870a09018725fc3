"""Rows of ids from any source: fairseq's files on disk, texts assembled from parts, mini-batches."""
