"""Which cards this node has, in units and with their health, and the inventory annotation that says so on the Node.

Belongs here: asking drivers, counting units, publishing. Never: which pod gets which card, how a container receives one.
"""
