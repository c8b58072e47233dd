"""Kafka's classic consumer groups: who is a member, who leads, and which generation it is.

Everything here is plain code under one lock. Requests and expired timers go in; answers, snapshots to store
and new timers come out. No clock is read, no thread is started and nothing is written here.
"""
