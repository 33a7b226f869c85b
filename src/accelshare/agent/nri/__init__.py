"""Cards handed out by identity: the container runtime says which container of which pod it makes, and we say what that one gets.

Belongs here: what is answered for a container (`answers.py`), how it is said (`adjusting.py`), what is done when one was made
without us (`repairs.py`), and the life of it all (`way.py`). Never: NRI's bytes (`nri/`), whether a runtime goes on without us
(`runtimes/`), which card a pod gets (its record says it), the API server but for repairs and flags.
"""
