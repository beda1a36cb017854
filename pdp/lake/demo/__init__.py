"""Demonstration of the pipeline: a month of a small company, played on a real service."""
