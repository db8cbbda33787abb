"""The OpenAPI document: requests that schemathesis makes from it find no failure, and nothing that it does not say."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, seed, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from starlette_testclient import TestClient
from tests.server.hostile.in_process import HERE, WORKFLOWS, config, leaving_streams

from holdfast.server.http.app import create_app

SEED = int(os.environ.get("HOLDFAST_SEED", "0")) or random.SystemRandom().randrange(2**32)
EXAMPLES = 200 if os.environ.get("HOLDFAST_SOAK") else 8
DOCUMENTED = {502, 503, 504}
"""Failures that a client is told of: the workflow's, the storage's, and that it takes longer."""
