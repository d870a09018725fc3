"""Turns text into the ids of a fairseq dictionary: WordPiece, GPT-2's BPE and SentencePiece."""
