"""Translates between Kubernetes objects and the ledger's nouns: pods, nodes, annotations, kube-scheduler's messages.

Belongs here: Kubernetes' spellings, and decoding and encoding of JSON objects. Never: network, files, clock, decisions. Parts of
an object that cannot be read become problems in its fact, not exceptions.
"""
