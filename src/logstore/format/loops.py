"""The one door to the hot loops: whoever encodes, decodes or walks imports from here.

Behind it is the compiled module where this installation has one, else the plain Python of
:mod:`logstore.format.plain`: the same functions, bytes, results and errors.
"""

from logstore.build import compiled
from logstore.format import plain
from logstore.format.plain import scan_batches, skip_records

if compiled is None:
    decode_records, encode_records = plain.decode_records, plain.encode_records
else:
    from logstore.format.compiled import decode_records, encode_records

__all__ = ["decode_records", "encode_records", "scan_batches", "skip_records"]
