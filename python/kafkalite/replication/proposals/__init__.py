"""What this broker would have the controller write about its own replicas, asked for again and
again until the metadata says so."""
