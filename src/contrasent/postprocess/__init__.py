"""What is done to vectors after a model gave them, and baselines that need no model."""
