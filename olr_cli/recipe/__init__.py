"""What a run is: from YAML to values that are checked, whole and immutable.

file ──plain_yaml──► keys ──layers: its base, --set, sweep──► all keys ──validation──► Recipe
"""
