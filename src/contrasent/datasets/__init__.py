"""Named data sets: the papers' own, and folders in the layouts of others."""
