"""Tables that compare arms: what is in them, and how they are printed."""
