"""The API of AgentFlow: its messages, states, chunks and graph."""
