"""A request as OpenAI's chat completions take it -> what a chat format needs of it."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from uringinfer.errors import UsageError
from uringinfer.text.rendering import ChatRequest

_RENDERED = ("messages", "tools", "tool_choice", "response_format")
_SETTINGS = (
    *("add_generation_prompt", "chat_template_kwargs", "images", "reasoning", "reasoning_effort"),
    *("thinking", "thinking_effort"),
)
_SAMPLING = (
    *("frequency_penalty", "logit_bias", "logprobs", "max_completion_tokens", "max_tokens", "metadata"),
    *("min_p", "model", "n", "parallel_tool_calls", "presence_penalty", "repetition_penalty", "seed"),
    *("service_tier", "stop", "store", "stream", "stream_options", "temperature", "top_k", "top_logprobs"),
    *("top_p", "user"),
)
"""Keys that change how a reply is drawn or sent, not the prompt."""
_NO_EFFORT = ("none", "off")


def read_request(body: Any) -> tuple[ChatRequest, bool]:
    """The request in the JSON object `body`, and whether a reply is asked for (`add_generation_prompt`).

    Thinking and its effort become variables under every name that chat formats give them;
    `chat_template_kwargs` are variables as they are. Raises UsageError for what is no request, and for keys
    that nothing would heed.
    """
    if not isinstance(body, Mapping) or not isinstance(body.get("messages"), list):
        raise UsageError("a request is a JSON object with a list of messages")
    known = {*_RENDERED, *_SETTINGS, *_SAMPLING}
    for key in body:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1)
            raise UsageError(
                f"a request has no {key!r}",
                hint=f"did you mean {near[0]!r}?" if near else "leave it out",
            )
    variables = _variables(body)
    if isinstance(body.get("chat_template_kwargs"), Mapping):
        variables |= body["chat_template_kwargs"]
    tools = body.get("tools")
    if tools is not None and not isinstance(tools, list):
        raise UsageError("a request's tools are no list", hint="give a list of tools")
    request = ChatRequest(
        body["messages"],
        tools=tools,
        tool_choice=body.get("tool_choice"),
        response_format=body.get("response_format"),
        variables=variables,
    )
    return request, body.get("add_generation_prompt", True) is not False


def _variables(body: Mapping[str, Any]) -> dict[str, Any]:
    reasoning = body.get("reasoning")
    efforts = [body.get("thinking_effort"), body.get("reasoning_effort")]
    efforts += [reasoning.get("effort")] if isinstance(reasoning, Mapping) else []
    effort = next((given for given in efforts if given is not None), None)
    thinking = body.get("thinking")
    if isinstance(thinking, Mapping):
        thinking = {"enabled": True, "disabled": False}.get(str(thinking.get("type")))
    variables: dict[str, Any] = {}
    if effort is not None:
        variables |= {"thinking_effort": effort, "reasoning_effort": effort}
        if effort in _NO_EFFORT and thinking is None:
            thinking = False
    if isinstance(thinking, bool):
        variables |= {"thinking": thinking, "enable_thinking": thinking}
    if body.get("images") is not None:
        variables["images"] = body["images"]
    return variables
