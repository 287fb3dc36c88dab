"""Folders, archives, files and tables to sections and passages of text."""
