"""Where the records of a read come from: the files of a directory, or brokers."""
