"""Every table and figure of five documents, as recipes that are run, compared and reported."""
