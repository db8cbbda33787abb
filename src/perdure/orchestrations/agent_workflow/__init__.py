"""AgentWorkflow: agents as nodes, with conditions, approvals and loops, built fluently or read from a document."""

from perdure.orchestrations.agent_workflow import condition as condition
