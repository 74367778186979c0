"""The shell: what every service stands on. No service owns it."""
