"""The labels by which nodes share their cards, given at an install and taken away at the uninstall.

Belongs here: giving labels, remembering on the node which of them we gave, taking away just those.
Never: what a label makes a node do; any other field of a node.
"""
