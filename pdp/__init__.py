"""A policy decision service for lakehouses: a decision is a pure function of (batch, bundle, facts)."""

__version__ = "0.1.0"
