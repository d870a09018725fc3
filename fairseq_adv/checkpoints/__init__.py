"""Pre-trained encoders in: folders in Hugging Face's layout become fairseq checkpoints.

``hf_folder`` reads and checks such a folder, ``vocabulary`` and ``bpe_vocabulary`` put its tokens in fairseq's order,
``key_map`` renames its tensors, ``convert`` writes the result, and ``minilm`` fetches the encoder of the quickstart.
"""
