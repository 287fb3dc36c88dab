"""From sentences to vectors: backbone, pooler, head, and the folders they live in."""
