"""Adapters for other libraries; each needs only that library."""
