"""Is a difference real? Intervals and tests over items, seeds and documents."""
