"""HOW WELL it was learned: measurements on trained models that fairseq-validate does not make."""
