"""Topics handed from one directory to another: from a store to a broker's log directory, and back."""
