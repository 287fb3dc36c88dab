"""Post-processing of a model's vectors, and baselines that need no model."""
