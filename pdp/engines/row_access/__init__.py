"""Row access: the rows of a table, and the unmasked columns, that a principal may see."""
