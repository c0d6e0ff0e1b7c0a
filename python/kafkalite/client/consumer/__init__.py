"""Reads records: a consumer, its fetches and positions, and its membership in a group."""
