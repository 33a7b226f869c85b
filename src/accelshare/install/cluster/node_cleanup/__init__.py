"""What agents leave on their nodes' objects, taken away at the end of an installation.

Belongs here: ending the agents, who would write it again, and taking their inventory and amounts from the nodes.
Never: labels (node_labels/); what an agent writes (inventory_publisher.py); pods' records, which their containers live by.
"""
