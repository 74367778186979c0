"""What the gateway decides, without looking outside: access, submissions, read models, explanations."""
