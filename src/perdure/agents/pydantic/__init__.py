"""The one place that knows pydantic-ai: its messages, models, tools and turns as ours."""

from perdure.errors import MissingExtra

try:
    import pydantic_ai as pydantic_ai
except ImportError as error:
    raise MissingExtra("perdure.agents.Agent", "pydantic-ai-slim", "agents") from error
