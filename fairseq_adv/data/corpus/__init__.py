"""Raw text to the shards of a pre-training run, the checks before it, and its masking rates."""
