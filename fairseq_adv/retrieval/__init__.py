"""Retrieval: sentences in, ranked documents for a question and a choice out.

``sentences`` reads text, ``query`` says what is looked for, ``tantivy_index`` and ``opensearch_index`` look
it up, ``documents`` picks what is worth reading, ``fill`` writes it into a jsonl. Nothing here knows a model
or a task; tantivy and opensearch-py (the extra ``retrieval``) are imported when they are needed.
"""
