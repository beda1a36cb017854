"""The CEL language: from the text of an expression to a Python function. Knows no rule, no check and no policy.

Only the CEL engines import it. From text to function they call `parser`, `checker` and `compiler`; `syntax`, `unparse`,
`types`, `functions`, `patterns` and `values` are what lint and explanations read. The migration of Nessie catches the
errors of `values`.
"""
