"""A folder of documents in, a search that is proven better out."""
