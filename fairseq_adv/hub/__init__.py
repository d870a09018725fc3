"""What goes to and from Hugging Face: folders in its layout become fairseq checkpoints.

``convert`` is the whole way. ``hf_folder`` reads such a folder, ``model_config`` its sizes, ``vocabulary``
(with one module a kind) puts its tokens in fairseq's order, ``key_map`` rearranges its tensors,
``fairseq_state`` makes the checkpoint. ``minilm`` fetches the encoder of the quickstart.
``vocabulary_check`` compares a checkpoint's vocabulary with the data's before fairseq loads it.
"""
