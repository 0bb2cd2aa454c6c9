// The official JavaScript client of OpenAI against a server of ours; see
// clients.py for the argument and what is printed.
import OpenAI from "openai";

const given = JSON.parse(process.argv[2]);
const api = new OpenAI({ baseURL: given.url + "/v1", apiKey: "sesame", maxRetries: 0 });
const greedy = { model: "tiny", messages: [{ role: "user", content: given.known }], temperature: 0, reasoning_effort: "none" };
const parameters = { type: "object", properties: { package: { type: "string" }, symbol: { type: "string" } }, required: ["package", "symbol"] };
const tools = {
  ...greedy,
  messages: [{ role: "user", content: given.question }],
  tools: [{ type: "function", function: { name: "go_doc", description: "Look up a Go symbol.", parameters } }],
};
const sameCall = (text) => JSON.stringify(JSON.parse(text)) === '{"package":"strings","symbol":"Repeat"}';

function check(name, holds) {
  if (!holds) {
    console.error(name, "does not hold");
    process.exit(1);
  }
  console.log("ok", name);
}

let reply = await api.chat.completions.create(greedy);
check("chat", reply.choices[0].message.content === given.reply && reply.usage.completion_tokens === 80);

let text = "";
let usage = null;
for await (const chunk of await api.chat.completions.create({ ...greedy, stream: true, stream_options: { include_usage: true } })) {
  text += chunk.choices[0]?.delta.content ?? "";
  usage = chunk.usage;
}
check("stream", text === given.reply && usage.completion_tokens === 80);

reply = await api.chat.completions.create(tools);
const call = reply.choices[0].message.tool_calls[0];
check("tools", reply.choices[0].finish_reason === "tool_calls" && sameCall(call.function.arguments));
reply = await api.chat.completions.stream(tools).finalChatCompletion();
check("tools streamed", sameCall(reply.choices[0].message.tool_calls[0].function.arguments));

reply = await api.chat.completions.create({ ...greedy, logprobs: true, top_logprobs: 3 });
check("logprobs", reply.choices[0].logprobs.content.length === 80 && reply.choices[0].logprobs.content.every((e) => e.top_logprobs.length === 3));

const schema = {
  type: "object",
  properties: { name: { type: "string", maxLength: 8 }, count: { type: "integer" } },
  required: ["name", "count"],
  additionalProperties: false,
};
reply = await api.chat.completions.create({ ...greedy, max_tokens: 200, response_format: { type: "json_schema", json_schema: { name: "thing", strict: true, schema } } });
const made = JSON.parse(reply.choices[0].message.content);
check("structured output", Object.keys(made).sort().join() === "count,name" && Number.isInteger(made.count));

const stream = await api.chat.completions.create({ ...greedy, stream: true, max_tokens: 3000, ignore_eos: true });
for await (const _ of stream) {
  break; // which aborts it
}
reply = await api.chat.completions.create(greedy);
check("cancel", reply.choices[0].message.content === given.reply);

const failure = await api.chat.completions.create({ ...greedy, n: 2 }).catch((e) => e);
check("errors", failure instanceof OpenAI.BadRequestError && failure.code === "unsupported_parameter" && failure.param === "n");

reply = await api.responses.create({ model: "tiny", input: given.known, temperature: 0, reasoning: { effort: "none" } });
check("responses", reply.output_text === given.reply);
const events = api.responses.stream({ model: "tiny", input: given.known, temperature: 0, reasoning: { effort: "none" } });
check("responses streamed", (await events.finalResponse()).output_text === given.reply);

const models = await api.models.list();
check("models", models.data[0].id === "tiny-qwen3.5");
console.log("done");
