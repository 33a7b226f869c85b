"""The bill of materials: what an installation of accelshare consists of, in the CycloneDX form.

Belongs here: reading the metadata of installed distributions and packages, and printing them. Never: the network, a package
index, or a guess about what is not installed.
"""
