"""From a file's content to its title and sections, one format a module."""
