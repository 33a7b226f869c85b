"""Code that touches hardware: one file per way of asking, two verbs each.

Belongs here: finding a vendor's cards and hearing when one falls ill. Every root and path is an argument, so that the same
code runs against fake tools and libraries. Never: the cluster, units, scheduling. A driver that is not sure of a card does
not report it; a driver that cannot ask says what it tried.
"""
