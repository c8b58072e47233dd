"""What rigs of the tests put themselves in front of."""

BY_PATH = (
    "rename",
    "link",
    "remove",
    "make_directory",
    "remove_directory",
    "flush_directory",
    "set_modified_ms",
)
"""The methods of a file system that change something, but for those of open files."""
