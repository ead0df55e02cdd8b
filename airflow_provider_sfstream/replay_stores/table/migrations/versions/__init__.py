"""One module for each revision of the tables, named after it."""
