"""Converts GLUE's files to the folders that fairseq's ``sentence_prediction`` reads."""
