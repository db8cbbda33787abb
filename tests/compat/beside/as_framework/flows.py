"""The names of workflows, as Agent Framework has them."""

from agent_framework import *
from agent_framework.exceptions import *
from agent_framework_orchestrations import *
from agent_framework_orchestrations._base_group_chat_orchestrator import *  # 1.13 does not export its messages
