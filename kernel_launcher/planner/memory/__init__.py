"""What a training step holds in GPU memory, derived from what torch, transformers, TRL and PEFT do."""
