"""Converts between Hugging Face folders and fairseq checkpoints, in both directions.

``convert`` does the whole conversion. ``hf_folder`` reads a Hugging Face folder, ``model_config`` its sizes,
``vocabulary`` (with one module per kind) orders its tokens for fairseq, ``key_map`` rearranges its tensors by
the names in ``families``, and ``fairseq_state`` builds the checkpoint. ``minilm`` downloads the quickstart's
encoder. ``export`` does the reverse: ``export_state`` reads a trained checkpoint, ``export_kinds``
determines what it was trained for, ``export_model`` and ``export_tokenizer`` write the files that
transformers reads, ``export_card`` the model card. ``vocabulary_check`` compares a checkpoint's vocabulary
with that of the data before fairseq loads it.
"""
