"""Brings requests to the brokers of a cluster: connections, versions, leaders and coordinators."""
