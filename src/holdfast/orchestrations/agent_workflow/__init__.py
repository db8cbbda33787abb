"""AgentWorkflow: agents as nodes, with conditions, approvals and loops, built fluently or read from a document."""
