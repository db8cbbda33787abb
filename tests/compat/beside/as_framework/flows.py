"""The names of workflows, as Agent Framework has them."""

from agent_framework import *
from agent_framework.exceptions import *
from agent_framework_orchestrations import *
