"""Many texts to files: shards and their manifest, made in this process or by many."""
