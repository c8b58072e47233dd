"""The file operations that test rigs intercept."""

BY_PATH = (
    "rename",
    "link",
    "remove",
    "make_directory",
    "remove_directory",
    "flush_directory",
    "set_modified_ms",
)
"""The methods of a file system that change something, without those of open files."""
