"""A queue of doubtful labels for people, and what is left of the data set.

history ──tally──► counts ──annotators──► log odds ──audit──► verdicts, in the order of the queue ──► answer
                        verified labels ──calibration──► chances ▲                               └──► export
"""
