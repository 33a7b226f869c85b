"""Other people's shapes to our nouns and back: pods, nodes, annotations, the scheduler's messages.

Belongs here: Kubernetes' spellings, and every place where a JSON object is taken apart or put together.
Never: network, files, clock, deciding anything. What cannot be read is said in words, not raised past this room.
"""
