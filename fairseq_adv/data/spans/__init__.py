"""Questions whose answers are spans of a context: SQuAD's files, windows of tokens, scores."""
