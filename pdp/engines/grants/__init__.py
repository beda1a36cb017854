"""Grants engine: decides by stored grants under Lakekeeper's authorization model."""
