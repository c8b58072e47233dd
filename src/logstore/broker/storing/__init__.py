"""Where a broker keeps its own state: internal topics and small files, of which coordinators are made."""
