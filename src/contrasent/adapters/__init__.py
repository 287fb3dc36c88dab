"""A model in the forms that other libraries expect; each needs that library only."""
