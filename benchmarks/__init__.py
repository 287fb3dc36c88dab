"""Measurements that take minutes; nothing here is part of the package or of its tests."""
