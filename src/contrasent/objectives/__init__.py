"""What is learnt: one method a file; the file's name is the method's name."""
