"""One view of the ledger for people: rows, tables, JSON.

Belongs here: how the book is shown. Never: sums of its own, I/O, a vendor's name (dialects are profile data).
"""
