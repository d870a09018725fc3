"""What trained models are worth: measurements that fairseq-validate does not make, and files of answers."""
