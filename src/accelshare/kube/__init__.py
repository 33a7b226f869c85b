"""The only room that talks to the API server.

Belongs here: finding the cluster (kubeconfig, in-cluster), proving who we are, asking, listing, watching, binding, events,
and the in-memory API server that answers the same questions in tests and demos. Library errors end at this door: what
leaves the room is the tree in `errors`.
Never: a decision. Nothing in here knows what a card, a share or an assignment is.

`errors`, `config` and what they use need no event loop, so that a short-lived command can use them with
http.client. Nothing is re-exported here for the same reason: import the file that has the noun.
"""
