"""Sockets, and the threads that read from them."""
