"""The surface that users of AgentFlow know: its messages, states, chunks and graph."""
