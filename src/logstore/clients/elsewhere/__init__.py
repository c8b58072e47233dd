"""What looks after groups through a broker alone, wherever that is."""
