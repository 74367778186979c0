"""What the gateway does when it hears a fact or is asked something over HTTP."""
