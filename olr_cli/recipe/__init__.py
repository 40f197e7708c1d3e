"""A run's recipe: from YAML to values that are checked, complete and immutable.

file ──plain──► keys ──layers: bases, settings──► sweep──► Recipe (schema: sections, methods, verifier)
"""
