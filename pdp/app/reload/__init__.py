"""Reload of policies and certificates while requests run: found, loaded by another process, published, switched."""
