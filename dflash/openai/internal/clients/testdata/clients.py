"""The official Python clients of OpenAI and Anthropic against a server of ours.

Its argument is a JSON object: url, and of the tiny pair known, reply (a prompt
and what it writes) and question (one that it answers with a call).
Prints the name of each check that holds.
"""

import json
import sys

import anthropic
import openai

given = json.loads(sys.argv[1])
api = openai.OpenAI(base_url=given["url"] + "/v1", api_key="sesame", max_retries=0)
claude = anthropic.Anthropic(base_url=given["url"], api_key="sesame", max_retries=0)
known = dict(model="tiny", messages=[{"role": "user", "content": given["known"]}])
greedy = dict(known, temperature=0, reasoning_effort="none")
asked = [{"role": "user", "content": given["question"]}]
schema = {"type": "object", "properties": {"package": {"type": "string"}, "symbol": {"type": "string"}}, "required": ["package", "symbol"]}
function = {"name": "go_doc", "description": "Look up a Go symbol.", "parameters": schema}
arguments = {"package": "strings", "symbol": "Repeat"}


def check(name, holds):
    if not holds:
        raise SystemExit(f"{name} does not hold")
    print("ok", name, flush=True)


reply = api.chat.completions.create(**greedy)
check("chat", reply.choices[0].message.content == given["reply"] and reply.usage.completion_tokens == 80)

text, usage = "", None
for chunk in api.chat.completions.create(**greedy, stream=True, stream_options={"include_usage": True}):
    if chunk.choices:
        text += chunk.choices[0].delta.content or ""
    usage = chunk.usage
check("stream", text == given["reply"] and usage.completion_tokens == 80)

with api.chat.completions.stream(**greedy) as stream:
    for _ in stream:
        pass
    final = stream.get_final_completion()
check("stream helper", final.choices[0].message.content == given["reply"])

tools = dict(model="tiny", messages=asked, temperature=0, reasoning_effort="none", tools=[{"type": "function", "function": function}])
reply = api.chat.completions.create(**tools)
call = reply.choices[0].message.tool_calls[0]
check("tools", reply.choices[0].finish_reason == "tool_calls" and json.loads(call.function.arguments) == arguments)

with api.chat.completions.stream(**tools) as stream:
    for _ in stream:
        pass
    final = stream.get_final_completion()
check("tools streamed", final.choices[0].message.tool_calls[0].function.arguments == call.function.arguments)

result = {"role": "tool", "tool_call_id": call.id, "content": "func Repeat(s string, count int) string"}
reply = api.chat.completions.create(**dict(tools, messages=asked + [reply.choices[0].message, result], max_tokens=20))
check("tool result", bool(reply.choices[0].message.content))

reply = api.chat.completions.create(**greedy, logprobs=True, top_logprobs=3)
entries = reply.choices[0].logprobs.content
check("logprobs", len(entries) == 80 and all(len(e.top_logprobs) == 3 and e.logprob <= 0 for e in entries))

thing = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "count": {"type": "integer"}},
    "required": ["name", "count"],
    "additionalProperties": False,
}
form = {"type": "json_schema", "json_schema": {"name": "thing", "strict": True, "schema": thing}}
reply = api.chat.completions.create(**greedy, response_format=form, max_tokens=200)
made = json.loads(reply.choices[0].message.content)
check("structured output", set(made) == {"name", "count"} and isinstance(made["count"], int))

stream = api.chat.completions.create(**greedy, stream=True, max_tokens=3000, extra_body={"ignore_eos": True})
next(iter(stream))
stream.close()
check("cancel", api.chat.completions.create(**greedy).choices[0].message.content == given["reply"])

try:
    api.chat.completions.create(**greedy, n=2)
    check("errors", False)
except openai.BadRequestError as e:
    check("errors", e.code == "unsupported_parameter" and e.param == "n")
try:
    api.chat.completions.create(**dict(greedy, model="other"))
    check("no model", False)
except openai.NotFoundError as e:
    check("no model", e.code == "model_not_found")
try:
    openai.OpenAI(base_url=given["url"] + "/v1", api_key="wrong", max_retries=0).models.list()
    check("key", False)
except openai.AuthenticationError as e:
    check("key", e.code == "invalid_api_key")
check("models", [m.id for m in api.models.list()] == ["tiny-qwen3.5"])

request = dict(model="tiny", input=given["known"], temperature=0, reasoning={"effort": "none"})
reply = api.responses.create(**request)
check("responses", reply.output_text == given["reply"] and reply.status == "completed")
with api.responses.stream(**request) as stream:
    for _ in stream:
        pass
    final = stream.get_final_response()
check("responses streamed", final.output_text == given["reply"])
flat = dict(model="tiny", input=given["question"], temperature=0, reasoning={"effort": "none"}, tools=[dict(function, type="function", strict=False)])
with api.responses.stream(**flat) as stream:
    for _ in stream:
        pass
    final = stream.get_final_response()
check("responses tools", [json.loads(i.arguments) for i in final.output if i.type == "function_call"] == [arguments])

# The client has no temperature any more; the server has one.
request = dict(known, max_tokens=200, extra_body={"temperature": 0})
message = claude.messages.create(**request)
check("messages", message.content[0].text == given["reply"] and message.stop_reason == "end_turn" and message.usage.output_tokens == 80)
with claude.messages.stream(**request) as stream:
    text = "".join(stream.text_stream)
    final = stream.get_final_message()
check("messages streamed", text == given["reply"] and final.usage.output_tokens == 80)
tool = {"name": "go_doc", "description": "Look up a Go symbol.", "input_schema": schema}
with claude.messages.stream(model="tiny", messages=asked, max_tokens=200, tools=[tool], extra_body={"temperature": 0}) as stream:
    for _ in stream:
        pass
    final = stream.get_final_message()
check("messages tools", final.stop_reason == "tool_use" and final.content[-1].input == arguments)
count = claude.messages.count_tokens(**known)
check("count tokens", count.input_tokens == message.usage.input_tokens + message.usage.cache_read_input_tokens)
try:
    claude.messages.create(**dict(request, messages=[]))
    check("messages errors", False)
except anthropic.BadRequestError as e:
    check("messages errors", e.body["error"]["type"] == "invalid_request_error")
print("done")
