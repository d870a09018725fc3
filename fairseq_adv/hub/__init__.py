"""Converts between Hugging Face folders and fairseq checkpoints, in both directions.

``convert`` does the whole conversion: ``hf_folder`` reads a Hugging Face folder, ``vocabulary`` orders its
tokens for fairseq. ``export`` does the reverse: ``trained_checkpoint`` reads a checkpoint and determines what
it was trained for, ``export_tokenizer`` and ``export_card`` write the tokenizer and the model card. Both use
``families``, the names of each kind of encoder, ``model_config``, its sizes and options, and ``tensors``, its
weights.

``minilm`` downloads the quickstart's encoder. ``vocabulary_check`` compares a checkpoint's vocabulary with
that of the data before fairseq loads it.
"""
