"""Questions with choices: ARC, CommonsenseQA, RACE, Regents, QNLI as pairs, and their mini-batches."""
