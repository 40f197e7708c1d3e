"""A queue of doubtful labels for people to check, and the data set that remains.

history ──tally──► counts ──annotators──► log odds ──audit──► verdicts, in the order of the queue ──► answer
                        verified labels ──calibration──► chances ▲                               └──► export
"""
