"""The seam above the logs: requests and results in Kafka's terms, and what answers them in this process."""
