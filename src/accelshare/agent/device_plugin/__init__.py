"""Delivery through kubelet's device plugin interface, which every cluster has.

Belongs here: what only this delivery needs: sockets, registration, device ids, which pod a request is for, PodResources,
reconciliation. Never: what a card is to a container (container_cards.py), NRI.
"""
