"""Finding: vectors and texts in a folder, searched exactly."""
