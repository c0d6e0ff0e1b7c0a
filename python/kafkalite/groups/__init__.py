"""Consumer groups: who is a member, who reads what, and how far each group has read."""
