"""What a run is: from YAML to values that are checked, complete and immutable.

file ──files──► keys, with those of its base, the settings and the sweep ──checks──► Recipe (schema)
"""
