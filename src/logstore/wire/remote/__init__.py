"""A broker elsewhere: requests of the seam go out as Kafka's protocol has them, and answers come back."""
