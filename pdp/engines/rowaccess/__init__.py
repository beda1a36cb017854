"""Row access: which rows of a table, and which of its columns unmasked, somebody gets to see."""
