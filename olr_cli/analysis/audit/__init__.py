"""Which given labels look wrong, how sure the history is of it, and the data set with those repaired.

history ──tally──► counts ──estimator──► log odds ──calibration──► confidence ──audit──► ranked prompts ──► report
                                              ▲ trusted labels                                        └──► export
"""
