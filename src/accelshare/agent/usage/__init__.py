"""Usage: how much memory and time of each card each pod uses, which pods use more than they hold, and which use nothing.

Belongs here: asking drivers for processes, finding the pods of processes, and what follows for a pod. Never: how hardware is
asked (vendors/drivers), limits (a pod that uses too much is reported, and evicted only if that is switched on).
"""
