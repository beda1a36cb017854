"""LakeQL's scopes as an engine: permission files, the two decision tables, and resolvers of other packages."""
