"""Runs, compares and reports tables and figures of five documents, and of others from outside."""
