"""Measures what all-reduce costs here, and says why."""
