"""Discovery: which cards this node has, in units and with their health, published in the Node's inventory annotation.

Belongs here: calling drivers, counting units, publishing. Never: which pod gets which card, how a container gets it.
"""
