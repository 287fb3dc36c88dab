"""Intervals and tests of differences over items, seeds and documents."""
