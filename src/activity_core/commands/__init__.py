"""The commands for users and operators. They talk to the HTTP API alone, and so work from any machine that reaches it."""
