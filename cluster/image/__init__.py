"""Builds the container image: with an installed engine, or without a registry from a base image of our own.

Belongs here: what decides an image's content, engines and how they are called, a base made of the distribution's packages.
Never: what is inside the image; that is the Dockerfile's.
"""

from cluster.image.build import Built, build_with_debian, build_with_engine

__all__ = ["Built", "build_with_debian", "build_with_engine"]
