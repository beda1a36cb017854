"""Report on the audit lake: questions in SQL, their answers as tables and files, and one page for people."""
