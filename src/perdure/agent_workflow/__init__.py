"""Workflows of agents: agents as nodes of a graph that is data."""

from perdure.agent_workflow import condition as condition
