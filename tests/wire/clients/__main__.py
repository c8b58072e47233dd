"""``python -m tests.wire.clients`` runs all clients, and writes the table of docs/clients.md.

Takes two minutes.
"""

import sys

from tests.wire.clients import page
from tests.wire.clients.columns import column
from tests.wire.clients.table import CLIENTS

absent = {each.name: each.missing() for each in CLIENTS if each.missing() is not None}
if absent:
    sys.exit(f"the table needs every client: {absent}")
columns = {}
for client in CLIENTS:
    print(client.name, client.version(), flush=True)
    columns[client] = column(client)
    for name, cell in columns[client].items():
        if cell.works is False:
            print(f"{name} does not work:\n{cell.problem}", flush=True)
page.write(columns)
