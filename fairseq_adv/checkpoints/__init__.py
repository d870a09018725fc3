"""A patch of fairseq that reads checkpoints; see :mod:`fairseq_adv.hub` for what goes to and from others."""
