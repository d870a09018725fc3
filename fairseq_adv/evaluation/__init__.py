"""Evaluates trained models: measurements that fairseq-validate does not make, and prediction files."""
