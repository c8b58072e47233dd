"""How each request is answered: one file per request, from its message to what is asked of the broker, and
back. No sockets here."""
