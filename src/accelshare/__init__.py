"""accelshare: accelerator sharing for Kubernetes. One engine, one data file per vendor."""

__version__ = "0.1.0"
