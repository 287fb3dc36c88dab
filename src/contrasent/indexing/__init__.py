"""Indexes of documents by models: which model, and which texts become rows."""
