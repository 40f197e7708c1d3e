"""Which given labels look wrong, how sure the history is of it, and the data set with those repaired.

history ──tally──► counts ──estimator──► log odds ──confidence──► verdicts ──audit──► ranked prompts ──► answer
                                              ▲ trusted labels                                     └──► export
"""
