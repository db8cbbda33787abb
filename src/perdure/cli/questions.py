"""A question to a person, as commands show it."""

from __future__ import annotations

from perdure.cli.readable import in_a_line, in_lines, printable
from perdure.cli.tables import moment, print_folded
from perdure.events import WorkflowEvent


def tell_request(request: WorkflowEvent) -> None:
    """A question, with its terms."""
    expected = in_a_line(request.response_type)
    said = [f"request {request.request_id} of {request.source_executor_id}", f"expects {expected}"]
    if request.terms is not None and request.terms.assignee is not None:
        said.append(f"for {request.terms.assignee}")
    if request.terms is not None and request.terms.deadline is not None:
        said.append(f"until {moment(request.terms.deadline)}")
    print_folded(f"  {printable(', '.join(said))}", 4, fg="magenta")
    for line in in_lines(request.data):
        print_folded(f"  | {line}", 4)
