"""The version of the package, in the one place that both the build and the code read."""

VERSION = "0.1.0"
