"""The bus: subjects, streams, publishing, and turns over batches of facts."""
