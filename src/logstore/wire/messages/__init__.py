"""The requests and responses of Kafka's protocol, a module each, in rooms by what they are about."""
