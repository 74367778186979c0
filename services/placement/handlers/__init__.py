"""What placement does with facts, questions and time: load, decide, say."""
