"""Drivers: find a vendor's cards and watch their health, through its libraries and tools.

Belongs here: code that touches hardware. Every root and path is an argument, so that the same code runs against fake tools and
libraries. Never: the cluster, units, scheduling. A driver does not report a card that it is not sure of; a driver that cannot
read the hardware reports what it tried.
"""
