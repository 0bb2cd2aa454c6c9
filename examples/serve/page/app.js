"use strict";

// Everything that a model wrote reaches the page as text nodes, never as HTML.

const at = (id) => document.getElementById(id);
const talk = at("talk"), question = at("question"), maxBars = 400;
let turns = []; // of the conversation, as the API takes them
let running = null; // the AbortController of the answer that is being written

function element(tag, className, text) {
  const e = document.createElement(tag);
  if (className) e.className = className;
  if (text) e.textContent = text;
  return e;
}

function headers() {
  const h = { "Content-Type": "application/json" };
  const key = at("key").value;
  if (key) h.Authorization = "Bearer " + key;
  return h;
}

// explain turns an answer that is no stream into a sentence.
async function explain(response) {
  try {
    const body = await response.json();
    if (body.error && body.error.message) return body.error.message;
  } catch { /* no JSON */ }
  return "The server answered " + response.status + ".";
}

async function findModel() {
  try {
    const response = await fetch("v1/models", { headers: headers() });
    if (!response.ok) {
      at("model").textContent = await explain(response);
      return null;
    }
    const list = await response.json();
    const id = list.data[0].id;
    at("model").textContent = id;
    return id;
  } catch {
    at("model").textContent = "The server does not answer.";
    return null;
  }
}

// request is what the settings say, in the API's words.
function request(model) {
  const messages = at("system").value.trim() ? [{ role: "system", content: at("system").value }] : [];
  const r = {
    model, messages: messages.concat(turns), stream: true, stream_options: { include_usage: true },
    godflash: { tokens: true, no_draft: !at("draft").checked },
  };
  const number = (id) => (at(id).value === "" ? null : Number(at(id).value));
  if (number("max-tokens")) r.max_tokens = number("max-tokens");
  if (number("temperature")) r.temperature = number("temperature"); else r.temperature = 0;
  if (number("temperature") && number("top-p") !== null) r.top_p = number("top-p");
  if (number("temperature") && number("seed")) r.seed = number("seed");
  if (at("think").value) r.chat_template_kwargs = { enable_thinking: at("think").value === "on" };
  return r;
}

// Events of a stream of server-sent events; comments are skipped.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    for (let end; (end = rest.indexOf("\n\n")) >= 0; rest = rest.slice(end + 2)) {
      const data = rest.slice(0, end).split("\n").filter((l) => l.startsWith("data:")).map((l) => l.slice(5).trim()).join("\n");
      if (data === "[DONE]") return;
      if (data) yield JSON.parse(data);
    }
  }
}

// Answer is one turn of the model on the page.
class Answer {
  constructor() {
    this.box = element("article", "turn assistant");
    this.thought = null;
    this.text = element("span", "text");
    this.box.append(this.text);
    talk.append(this.box);
    this.content = "";
    this.kind = "plain";
    this.cycle = 0;
    this.first = this.last = 0;
    this.tokens = 0;
    this.cycles = 0;
  }

  // into gives the element that takes text of a kind.
  into(reasoning) {
    if (!reasoning) {
      if (this.thought) this.thought.open = false;
      return this.text;
    }
    if (!this.thought) {
      this.thought = element("details");
      this.thought.open = true;
      this.thought.append(element("summary", "", "Reasoning"), element("span", "text"));
      this.box.prepend(this.thought);
    }
    return this.thought.lastChild;
  }

  // chunk shows the next piece: the tokens that became known, and the text that
  // they complete, which is the last one's.
  chunk(tokens, delta) {
    const near = talk.scrollHeight - talk.scrollTop - talk.clientHeight < 80;
    for (const t of tokens) this.token(t);
    if (delta.reasoning_content) this.into(true).append(element("span", "token " + this.kind, delta.reasoning_content));
    if (delta.content) this.into(false).append(element("span", "token " + this.kind, delta.content));
    this.content += delta.content || "";
    if (near) talk.scrollTop = talk.scrollHeight;
  }

  // token counts one token and remembers its origin.
  token(t) {
    this.kind = t.drafted ? "draft" : t.drafts > 0 ? "correction" : "plain";
    this.last = performance.now();
    if (this.tokens++ === 0) {
      this.first = this.last; // the prompt's own token: of no cycle
    } else {
      this.cycle++;
      if (!t.drafted) this.endCycle();
    }
  }

  endCycle() {
    if (!this.cycle) return;
    this.cycles++;
    const bars = at("bars");
    const bar = element("div", "bar b" + Math.min(16, this.cycle));
    bar.title = this.cycle + (this.cycle === 1 ? " token" : " tokens");
    bars.append(bar);
    while (bars.childElementCount > maxBars) bars.firstChild.remove();
    this.cycle = 0;
  }

  // finish writes the figures; the server's own, where it sent them.
  finish(chunk, why) {
    this.endCycle();
    let rate = this.tokens > 1 && this.last > this.first ? (this.tokens - 1) / (this.last - this.first) * 1000 : 0;
    const t = chunk.timings;
    if (t && t.predicted_per_second) rate = t.predicted_per_second;
    const perCycle = this.cycles ? (this.tokens - 1) / this.cycles : 0;
    if (rate) at(at("draft").checked ? "rate-draft" : "rate-plain").textContent = rate.toFixed(0) + " tok/s";
    if (perCycle) at("per-cycle").textContent = perCycle.toFixed(1);
    const words = [this.tokens + " tokens"];
    if (rate) words.push(rate.toFixed(0) + " tok/s");
    if (perCycle) words.push(perCycle.toFixed(2) + " per cycle");
    const cached = chunk.usage && chunk.usage.prompt_tokens_details && chunk.usage.prompt_tokens_details.cached_tokens;
    if (cached) words.push(cached + " of " + chunk.usage.prompt_tokens + " prompt tokens reused");
    if (why) words.push(why);
    this.box.append(element("span", "foot", words.join(" · ")));
    if (this.thought) this.thought.open = false;
  }
}

function fail(text) {
  talk.append(element("article", "turn error", text));
  talk.scrollTop = talk.scrollHeight;
}

function busy(on) {
  at("send").hidden = on;
  at("stop").hidden = !on;
  talk.setAttribute("aria-busy", on);
}

async function ask(text) {
  const model = await findModel();
  if (!model) {
    fail(at("model").textContent);
    question.value = text;
    return;
  }
  at("hint").hidden = true;
  talk.append(element("article", "turn user", text));
  const mine = turns; // "New" begins another list
  mine.push({ role: "user", content: text });
  running = new AbortController();
  busy(true);
  const answer = new Answer();
  talk.scrollTop = talk.scrollHeight;
  const last = {};
  let why = "", failed = "";
  try {
    const response = await fetch("v1/chat/completions", { method: "POST", headers: headers(), body: JSON.stringify(request(model)), signal: running.signal });
    if (!response.ok) {
      failed = await explain(response);
    } else {
      for await (const chunk of events(response.body)) {
        if (chunk.error) {
          failed = chunk.error.message;
          break;
        }
        const choice = chunk.choices && chunk.choices[0];
        answer.chunk((chunk.godflash && chunk.godflash.tokens) || [], (choice && choice.delta) || {});
        if (choice && choice.finish_reason === "length") why = "cut at the limit";
        if (chunk.usage) last.usage = chunk.usage;
        if (chunk.timings) last.timings = chunk.timings;
      }
    }
  } catch (e) {
    if (e.name === "AbortError") why = "stopped"; else failed = "The connection broke: " + e.message;
  }
  running = null;
  busy(false);
  if (answer.tokens) {
    answer.finish(last, why);
    mine.push({ role: "assistant", content: answer.content });
  } else {
    answer.box.remove();
    mine.pop(); // a question without an answer may be asked again
    if (turns === mine) question.value = text;
    if (why && turns === mine) fail("Stopped before the first token.");
  }
  if (failed) fail(failed);
  question.focus();
}

function grow() {
  question.rows = Math.min(10, question.value.split("\n").length);
}

at("ask").addEventListener("submit", (e) => {
  e.preventDefault();
  const text = question.value;
  if (running || !text.trim()) return;
  question.value = "";
  grow();
  ask(text.trim());
});
question.addEventListener("input", grow);
question.addEventListener("keydown", (e) => {
  if (e.key === "Enter" && !e.shiftKey && !e.isComposing) {
    e.preventDefault();
    at("ask").requestSubmit();
  }
});
document.addEventListener("keydown", (e) => {
  if (e.key === "Escape" && running) running.abort();
});
at("stop").addEventListener("click", () => running && running.abort());
at("reset").addEventListener("click", () => {
  if (running) running.abort();
  turns = [];
  talk.replaceChildren(at("hint"));
  at("hint").hidden = false;
  at("bars").replaceChildren();
  question.focus();
});
at("open-settings").addEventListener("click", () => {
  const open = at("settings").hidden;
  at("settings").hidden = !open;
  at("open-settings").setAttribute("aria-expanded", open);
});
at("settings").addEventListener("submit", (e) => e.preventDefault());
const colour = () => document.body.classList.toggle("colour", at("colour").checked);
at("colour").addEventListener("change", colour);
at("key").value = sessionStorage.getItem("key") || "";
at("key").addEventListener("change", () => {
  sessionStorage.setItem("key", at("key").value);
  findModel();
});
colour();
findModel();
