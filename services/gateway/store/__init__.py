"""The gateway's tables: people, documents, and the read models that facts are folded into."""
