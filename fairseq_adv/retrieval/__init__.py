"""Retrieval: from sentences to ranked documents for a question and a choice.

``sentences`` reads text, ``tantivy_index`` searches, ``documents`` builds queries and selects results worth
reading, ``fill`` writes them to a jsonl. Nothing here depends on a model or a task; tantivy (the extra
``retrieval``) is imported only when needed.
"""
