"""The one door to the hot loops: whoever encodes, decodes or walks imports from here.

Today behind it is the plain Python of :mod:`logstore.format.plain`; a compiled module of the same functions
takes its place here, and nowhere else.
"""

from logstore.format.plain import decode_records, encode_records, scan_batches, skip_records

__all__ = ["decode_records", "encode_records", "scan_batches", "skip_records"]
