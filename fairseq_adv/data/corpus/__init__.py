"""Turns raw text into the shards of a pre-training run, checks them before the run, and schedules masking
rates."""
