"""Bundles of policies as archives: built, signed, verified and unpacked. Knows no network and no engine."""
