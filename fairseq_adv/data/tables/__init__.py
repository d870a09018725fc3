"""Reads tables row by row: csv, tsv, jsonl, parquet, Hugging Face data sets; texts with labels; splits."""
