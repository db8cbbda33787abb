"""The names of workflows, as perdure has them."""

from perdure import *
from perdure.exceptions import *
from perdure.orchestrations import *
