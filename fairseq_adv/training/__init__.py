"""What a run needs besides its method: restarts with other options, precision on GPUs, compiled layers."""
