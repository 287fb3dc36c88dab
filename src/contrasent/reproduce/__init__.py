"""Every table and figure of five documents, and of others from outside: run, compared, reported."""
