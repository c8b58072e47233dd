"""Random requests, most of them nearly right, for a broker of Kafka and for a store."""
