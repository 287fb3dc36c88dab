"""Turns a folder of documents into a search that is proven better."""
