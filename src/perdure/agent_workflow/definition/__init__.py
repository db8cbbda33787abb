"""A workflow of agents as data: nodes, edges, conditions, references."""

from perdure.agent_workflow.definition import condition as condition
