"""Proposals of this broker to its controller, about its own replicas: each is sent again and again
until the metadata says so."""
