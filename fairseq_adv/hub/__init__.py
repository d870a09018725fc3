"""What goes to and from Hugging Face: folders in its layout become fairseq checkpoints, and the other way.

``convert`` is the whole way. ``hf_folder`` reads such a folder, ``model_config`` its sizes, ``vocabulary``
(with one module a kind) puts its tokens in fairseq's order, ``key_map`` rearranges its tensors by the names
in ``families``, ``fairseq_state`` makes the checkpoint. ``minilm`` fetches the encoder of the quickstart.
``export`` is the way back: ``export_state`` reads a trained checkpoint, ``export_kinds`` finds out what it
was trained for, ``export_model`` and ``export_tokenizer`` write it as transformers reads it, ``export_card``
its model card. ``vocabulary_check`` compares a checkpoint's vocabulary with the data's before fairseq loads
it.
"""
