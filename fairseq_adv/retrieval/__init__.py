"""Retrieval: from sentences to ranked documents for a question and a choice.

``sentences`` reads text, ``query`` builds queries, ``tantivy_index`` and ``opensearch_index`` search,
``documents`` selects results worth reading, ``fill`` writes them to a jsonl. Nothing here depends on a model
or a task; tantivy and opensearch-py (the extra ``retrieval``) are imported only when needed.
"""
