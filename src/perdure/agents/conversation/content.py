"""Content: one part of a message."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias, TypedDict, cast

import msgspec

from perdure.agents.conversation.json_struct import JsonStruct, copy_fields, is_json, is_own
from perdure.codecs.types import register_type

_HOSTED_CALL = "mcp_server_tool_call"
"""The model's service makes this call."""

if TYPE_CHECKING:
    UsageDetails: TypeAlias = Mapping[str, int]
else:

    class UsageDetails(TypedDict, total=False):
        """Counts by name: these, and others of the model."""

        input_token_count: int
        output_token_count: int
        total_token_count: int


def content_factory(kind: str, *names: str, optional: str | None = None, **fixed: Any) -> Any:
    """A class method that creates contents of this type. `names` are its positional parameters, then `optional`."""
    positional = (*names, optional) if optional else names

    def create(cls: Callable[..., Any], *values: Any, **fields: Any) -> Any:
        if len(values) > len(positional):
            raise TypeError(f"A {kind} takes {len(positional)} positional arguments, got {len(values)}.")
        fields |= dict(zip(positional, values, strict=False))
        missing = [name for name in names if name not in fields]
        if missing:
            raise TypeError(f"A {kind} needs {', '.join(missing)}.")
        return cls(kind, **fields, **fixed)

    return classmethod(create)


def add_usage(first: UsageDetails | None, second: UsageDetails | None) -> dict[str, int]:
    """The sum of each count."""
    total = dict(first or {})
    for name, count in (second or {}).items():
        total[name] = total.get(name, 0) + count
    return total


class Content(JsonStruct, omit_defaults=True, repr_omit_defaults=True):
    """One part of a message. Its fields depend on `type`; create it with `Content.from_text(...)` and similar
    methods."""

    type: str
    text: str | None = None
    """`text`, `text_reasoning`."""
    uri: str | None = None
    """`uri`; `data` as a data: URI."""
    media_type: str | None = None
    message: str | None = None
    """`error`."""
    error_code: str | None = None
    error_details: str | None = None
    usage_details: dict[str, int] | None = None
    call_id: str | None = None
    """`function_call` and `function_result`: the id of the call."""
    name: str | None = None
    """`function_call`: the function."""
    arguments: str | dict[str, Any] | None = None
    """`function_call`: the model's arguments, usually a JSON text."""
    result: Any = None
    """`function_result`."""
    exception: str | None = None
    """`function_result` of a function that raised."""
    id: str | None = None
    """`function_approval_*`: the id of the request."""
    function_call: Content | None = None
    """`function_approval_*`: the requested call. A response may change its arguments."""
    approved: bool | None = None
    reason: str | None = None
    """`function_approval_response`: the reason of a rejection, for the model."""
    user_input_request: bool | None = None
    """Whether it needs an answer before the agent can continue."""
    protected_data: str | None = None
    """`text_reasoning`, as the model's service encrypted it."""
    informational_only: bool = False
    """A call that the model's service makes itself."""
    items: list[Any] | None = None
    """`function_result`: the result as contents."""
    file_id: str | None = None
    vector_store_id: str | None = None
    inputs: list[Any] | None = None
    outputs: Any = None
    image_id: str | None = None
    commands: list[str] | None = None
    timeout_ms: int | None = None
    max_output_length: int | None = None
    status: str | None = None
    actions: list[dict[str, Any]] | None = None
    screenshot: Content | None = None
    pending_safety_checks: list[Any] | None = None
    acknowledged_safety_checks: list[Any] | None = None
    stdout: str | None = None
    stderr: str | None = None
    exit_code: int | None = None
    timed_out: bool | None = None
    tool_name: str | None = None
    server_name: str | None = None
    output: Any = None
    hosted: bool = False
    """`function_call`: whether the model's service makes the call."""
    consent_link: str | None = None
    merge_mode: str | None = None
    """How a streamed part continues the one before it: `append` or `replace`."""
    annotations: list[Any] | None = None
    additional_properties: dict[str, Any] = msgspec.field(default_factory=dict)
    raw_representation: Any = None
    """What the model's client got. A checkpoint has it if it is JSON data."""

    twin: ClassVar[str] = "Content"
    free: ClassVar[frozenset[str]] = frozenset({"arguments", "result", "output", "additional_properties"})

    def __post_init__(self) -> None:
        if self.arguments is not None and not isinstance(self.arguments, (str, dict)):
            raise TypeError(f"The arguments of a call are a text or a dict, got {self.arguments!r}.")
        self.additional_properties = dict(self.additional_properties or {})
        self.informational_only = bool(self.informational_only) or self.type == _HOSTED_CALL
        self.hosted = bool(self.hosted)

    def to_dict(self, *, exclude: Any = None, exclude_none: bool = True) -> dict[str, Any]:
        """As JSON data, by default without unset fields."""
        hidden = {"informational_only"} if self.type == _HOSTED_CALL else set()
        return super().to_dict(exclude={*hidden, *(exclude or ())}, exclude_none=exclude_none)

    def _to_dict(self, *, exclude_none: bool, exclude: Any = None, redact_exception: bool = True) -> dict[str, Any]:
        """The framework's contents call it when they compare themselves with ours."""
        return self.to_dict(exclude=exclude, exclude_none=exclude_none)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any] | str) -> Self:
        """A text is accepted as text content. Unknown fields go to `additional_properties`. Raises ValueError for
        invalid data."""
        if isinstance(data, str):
            data = {"type": "text", "text": data}
        if not isinstance(data, Mapping):
            raise ValueError(f"Not a {cls.__name__}: expected a dict or a text, got {data!r}.")
        known = {name: value for name, value in data.items() if name in cls.__struct_fields__}
        others = {name: value for name, value in data.items() if name not in known and value not in (None, False)}
        if others:
            known["additional_properties"] = {**(known.get("additional_properties") or {}), **others}
        if isinstance(counts := known.get("usage_details"), Mapping):
            known["usage_details"] = {name: count for name, count in counts.items() if count is not None}
        return super().from_dict(known)

    @classmethod
    def _decode_field(cls, name: str, value: Any) -> Any:
        if name in ("items", "inputs", "outputs") and not (isinstance(value, list) and all(map(_has_type, value))):
            return value  # other data of a hosted tool
        return super()._decode_field(name, value)

    @classmethod
    def from_text(cls, text: str, **fields: Any) -> Content:
        return Content("text", text=text, **fields)

    @classmethod
    def from_data(cls, data: bytes, media_type: str, **fields: Any) -> Content:
        uri = f"data:{media_type};base64,{base64.b64encode(data).decode()}"
        return Content("data", uri=uri, media_type=media_type, **fields)

    @classmethod
    def from_uri(cls, uri: str, *, media_type: str | None = None, **fields: Any) -> Content:
        """The media type of a data: URI is a part of it."""
        kind = "data" if uri.startswith("data:") else "uri"
        if kind == "data" and media_type is None:
            media_type = uri[len("data:") :].partition(",")[0].partition(";")[0] or None
        return Content(kind, uri=uri, media_type=media_type, **fields)

    @classmethod
    def from_usage(cls, usage_details: UsageDetails, **fields: Any) -> Content:
        return Content("usage", usage_details=dict(usage_details), **fields)

    @classmethod
    def from_function_call(
        cls, call_id: str, name: str, *, arguments: str | Mapping[str, Any] | None = None, **fields: Any
    ) -> Content:
        call_arguments = dict(arguments) if isinstance(arguments, Mapping) else arguments
        return Content("function_call", call_id=call_id, name=name, arguments=call_arguments, **fields)

    @classmethod
    def from_function_result(
        cls, call_id: str, *, result: Any = None, exception: object = None, **fields: Any
    ) -> Content:
        description = None if exception is None else str(exception) or type(exception).__name__
        items = None
        if isinstance(result, list) and result and all(isinstance(item, Content) for item in result):
            items = as_contents(result)
            result = "\n".join(item.text for item in items if item.type == "text" and item.text)
        own: dict[str, Any] = {"result": result, "items": items, "exception": description}
        return Content("function_result", call_id=call_id, **own, **fields)

    from_text_reasoning = content_factory("text_reasoning", optional="text")
    from_error = content_factory("error", optional="message")
    from_hosted_file = content_factory("hosted_file", "file_id")
    from_hosted_vector_store = content_factory("hosted_vector_store", "vector_store_id")
    from_code_interpreter_tool_call = content_factory("code_interpreter_tool_call")
    from_code_interpreter_tool_result = content_factory("code_interpreter_tool_result")
    from_image_generation_tool_call = content_factory("image_generation_tool_call")
    from_image_generation_tool_result = content_factory("image_generation_tool_result")
    from_search_tool_call = content_factory("search_tool_call", "call_id")
    from_search_tool_result = content_factory("search_tool_result", "call_id")
    from_shell_tool_call = content_factory("shell_tool_call")
    from_shell_tool_result = content_factory("shell_tool_result")
    from_shell_command_output = content_factory("shell_command_output")
    from_computer_tool_call = content_factory("computer_tool_call", user_input_request=True)
    from_computer_tool_result = content_factory("computer_tool_result")
    from_mcp_server_tool_call = content_factory(_HOSTED_CALL, "call_id", "tool_name")
    from_mcp_server_tool_result = content_factory("mcp_server_tool_result", "call_id")
    from_oauth_consent_request = content_factory("oauth_consent_request", "consent_link", user_input_request=True)

    @classmethod
    def from_function_approval_request(cls, id: str, function_call: Content, **fields: Any) -> Content:
        call = as_content(function_call)
        return Content("function_approval_request", id=id, function_call=call, user_input_request=True, **fields)

    @classmethod
    def from_function_approval_response(
        cls, approved: bool, id: str, function_call: Content, *, reason: str | None = None, **fields: Any
    ) -> Content:
        own: dict[str, Any] = {"id": id, "approved": approved, "reason": reason}
        return Content("function_approval_response", function_call=as_content(function_call), **own, **fields)

    def to_function_approval_response(
        self, approved: bool, *, reason: str | None = None, arguments: Mapping[str, Any] | str | None = None
    ) -> Content:
        """The answer to a `function_approval_request`; `arguments` approves the call with changed arguments."""
        if self.type != "function_approval_request" or self.id is None or self.function_call is None:
            raise ValueError(f"Only a function_approval_request can be answered, this is a {self.type}.")
        call = self.function_call
        if arguments is not None:
            changed = arguments if isinstance(arguments, str) else dict(arguments)
            call = msgspec.structs.replace(call, arguments=changed)
        return Content.from_function_approval_response(approved, self.id, call, reason=reason)

    def approve(self, arguments: Mapping[str, Any] | str | None = None) -> Content:
        return self.to_function_approval_response(True, arguments=arguments)

    def reject(self, reason: str | None = None) -> Content:
        return self.to_function_approval_response(False, reason=reason)

    def parse_arguments(self) -> dict[str, Any]:
        """The arguments of a function call. Raises ValueError for a text that is not a JSON object."""
        if self.arguments is None or self.arguments == "":
            return {}
        if not isinstance(self.arguments, str):
            return dict(self.arguments)
        try:
            parsed = msgspec.json.decode(self.arguments)
        except msgspec.DecodeError as error:
            raise ValueError(
                f"The arguments of {self.name!r} are not valid JSON: {error}. They are: {self.arguments}"
            ) from error
        if not isinstance(parsed, dict):
            raise ValueError(f"The arguments of {self.name!r} are not a JSON object: {self.arguments}")
        return cast(dict[str, Any], parsed)

    def has_top_level_media_type(self, top_level_media_type: str) -> bool:
        """Whether the media type is of this kind: `application`, `audio`, `image`, `text`."""
        if self.media_type is None:
            raise ValueError(f"This {self.type} content has no media type.")
        return self.media_type.partition("/")[0].strip().lower() == top_level_media_type.lower()

    def data_bytes(self) -> bytes:
        """The bytes of `data`."""
        if self.uri is None or not self.uri.startswith("data:"):
            raise ValueError(f"This {self.type} content holds no data.")
        head, _, body = self.uri.partition(",")
        return base64.b64decode(body) if head.endswith(";base64") else body.encode()

    def __str__(self) -> str:
        if self.type == "error":
            return f"Error {self.error_code}: {self.message or ''}" if self.error_code else str(self.message)
        return self.text or "" if self.type == "text" else f"Content(type={self.type})"

    def __add__(self, other: Content) -> Content:
        """The content of two streamed parts: of a text, a call, or usage. Raises TypeError for other contents."""
        if self.type != other.type or self.type not in ("text", "text_reasoning", "function_call", "usage"):
            raise TypeError(f"A {self.type} and a {other.type} are not parts of one content.")
        fields = {name: getattr(self, name) or getattr(other, name) for name in self.__struct_fields__}
        fields["text"] = None if self.text is other.text is None else (self.text or "") + (other.text or "")
        fields["protected_data"] = other.protected_data or self.protected_data
        if isinstance(self.arguments, str) and isinstance(other.arguments, str):
            fields["arguments"] = self.arguments + other.arguments
        elif self.arguments and other.arguments:
            fields["arguments"] = other.arguments if isinstance(other.arguments, dict) else self.arguments
        if self.usage_details and other.usage_details:
            fields["usage_details"] = add_usage(self.usage_details, other.usage_details)
        fields["annotations"] = [*(self.annotations or ()), *(other.annotations or ())] or None
        fields["additional_properties"] = {**other.additional_properties, **self.additional_properties}
        return Content(**fields)


def _has_type(value: Any) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("type"), str)


def as_content(value: Any) -> Content:
    """A Content, one of Agent Framework, or a text as a Content. Raises TypeError for other values."""
    if is_own(value, Content):
        return cast(Content, value)
    if isinstance(value, str):
        return Content("text", text=value)
    if isinstance(value, Content):
        fields = copy_fields(value, Content)
        own = {name: _with_own(fields[name]) for name in (*Content.parts, "output") if name in fields}
        return Content(**fields | own)
    if _has_type(value):
        return Content.from_dict(value)
    raise TypeError(f"A message consists of texts and Contents. Expected a Content, got {value!r}.")


def _with_own(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_with_own(item) for item in value]
    return as_content(value) if isinstance(value, Content) else value


def as_contents(value: Any) -> list[Content]:
    """From texts and Contents, one or several. Raises TypeError for other values."""
    if value is None:
        return []
    if type(value) in (list, tuple) and {Content}.issuperset(map(type, value)):
        return list(value)
    if isinstance(value, (str, Content)):
        return [as_content(value)]
    if isinstance(value, Mapping) or not isinstance(value, Iterable):
        raise TypeError(f"A message consists of texts and Contents, got {value!r}.")
    return [as_content(item) for item in value]


Content.parts = dict.fromkeys(("function_call", "screenshot", "items", "inputs", "outputs"), Content)


def _to_stored_content(content: Content) -> dict[str, Any]:
    """Without unset fields: each turn of each conversation stores its messages."""
    pairs = ((name, getattr(content, name)) for name in Content.__struct_fields__)
    stored = {name: value for name, value in pairs if value is not None}
    if not content.additional_properties:
        del stored["additional_properties"]
    for flag in ("informational_only", "hosted"):
        if not stored[flag]:
            del stored[flag]
    if not is_json(content.raw_representation):
        del stored["raw_representation"]
    return stored


register_type(Content, _to_stored_content, lambda fields: Content(**fields))


def is_plain_text(content: Content) -> bool:
    """Whether it has a text and nothing else."""
    fields = content.__rich_repr__()  # those that differ from their defaults
    return len(fields) == 2 and content.type == "text" and fields[1][0] == "text"
