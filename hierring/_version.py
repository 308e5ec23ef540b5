"""The one place that names the version; the build reads this file, and ranks compare it."""

__version__ = "0.1.0"
