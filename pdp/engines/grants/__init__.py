"""Decides by stored grants under Lakekeeper's authorization model."""
