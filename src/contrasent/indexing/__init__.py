"""Indexing: documents or tables and a model in, an index out; and changes of that index."""
