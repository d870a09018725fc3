"""Tables of others, row by row: csv, tsv, jsonl, parquet, Hugging Face data sets; a share held out."""
