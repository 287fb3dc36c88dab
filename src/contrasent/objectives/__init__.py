"""Training methods, one per file; the file's name is the method's name."""
