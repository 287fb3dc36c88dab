"""Training methods, one a file; the file's name is the method's name."""
