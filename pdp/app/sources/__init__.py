"""Sources of policies beside folders: a server of bundles, a registry, a git repository. Used by the loader alone."""
