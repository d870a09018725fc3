"""Converts between Hugging Face folders and fairseq checkpoints, in both directions.

``convert`` does the whole conversion of a RoBERTa; ``vocabulary`` orders its tokens for fairseq. ``export``
does the reverse, for every trained model: ``trained_checkpoint`` reads a checkpoint and determines what it
was trained for, ``export_tokenizer`` and ``export_card`` make the tokenizer and the model card. Both use
``model_config``, a RoBERTa's sizes and options, and ``tensors``, its weights.

``vocabulary_check`` compares a checkpoint's vocabulary with that of the data before fairseq loads it.
"""
