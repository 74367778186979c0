"""The contract: what the planes say to each other and what users write. Pure: pydantic and nothing of ours."""
