"""Connections to brokers elsewhere: names and sockets, TLS and logins, requests and answers."""
