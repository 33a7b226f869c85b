"""Shows the ledger to people and programs: rows, tables, JSON, explanations.

Belongs here: what is shown, and how. Never: I/O, choosing cards, a vendor's name (dialects are profile data).
"""
