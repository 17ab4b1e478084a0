// The page's own life: it waits until the model is ready, sends what the form holds, and shows what comes back.

import { showAnswer } from "./answer.js";
import { callsOf } from "./calls.js";
import { bodyOf, readForm } from "./form.js";
import { showPictures } from "./pictures.js";
import { watchTraffic } from "./traffic.js";

const model = JSON.parse(document.getElementById("model").textContent);
const [form, enabled, send, state, said, problem, outputs, outdated, trust, copied] = [
  ..."form enabled send state said problem outputs outdated trust copied".split(" "),
].map((id) => document.getElementById(id));
const calls = new Map();
const OUTDATED = "What the form holds now cannot be sent: these are the last calls that could.";

async function waitUntilReady() {
  const before = said.textContent;
  if (state.dataset.state !== "ready") said.textContent = "Predict waits until the model is ready.";
  while (state.dataset.state !== "ready") {
    await new Promise((resolve) => setTimeout(resolve, 1000));
    const answer = await fetch(`${model.path}/ready`).catch(() => null);
    if (answer?.ok) {
      state.dataset.state = "ready";
      state.textContent = "Ready";
    }
  }
  said.textContent = before;
  enabled.disabled = false;
}

async function predict(event) {
  event.preventDefault();
  if (send.ariaDisabled === "true") return;
  send.ariaDisabled = "true";
  problem.textContent = "";
  said.textContent = "Asking …";
  outputs.classList.add("stale");
  try {
    const body = bodyOf(await readForm(form, model));
    const begun = performance.now();
    const answer = await fetch(`${model.path}/infer`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body,
    }).catch(() => Promise.reject(new Error("The service cannot be reached.")));
    const text = await answer.text();
    const milliseconds = performance.now() - begun;
    const id = answer.headers.get("X-Request-Id");
    if (!answer.ok) throw new Error(`${errorOf(text)} (${answer.status})`);
    showAnswer(outputs, text, model);
    said.textContent = `Answered in ${milliseconds.toFixed(milliseconds < 10 ? 1 : 0)} ms, there and back.`;
    if (id) said.append(" Request ", Object.assign(document.createElement("code"), { textContent: id }));
  } catch (error) {
    said.textContent = "";
    outputs.replaceChildren();
    problem.textContent = error.message;
  } finally {
    outputs.classList.remove("stale");
    send.ariaDisabled = "false";
  }
}

function errorOf(text) {
  try {
    return JSON.parse(text).error ?? text;
  } catch {
    return text.slice(0, 500);
  }
}

/** The calls follow the form; what it holds cannot always be sent, and then they stay as they are, and it is said. */
async function updateCalls() {
  if (!outdated) return;
  const inputs = await readForm(form, model).catch(() => []);
  outdated.textContent = inputs.length ? "" : OUTDATED;
  if (!inputs.length) return;
  for (const [tool, text] of Object.entries(callsOf(inputs, model))) {
    const code = document.querySelector(`[data-tool="${tool}"] code`);
    calls.set(tool, text);
    code.textContent = text.length > 20000 ? `${text.slice(0, 20000)} …` : text;
  }
}

async function copy(button) {
  const { tool } = button.parentElement.dataset;
  await writeClipboard(calls.get(tool) ?? button.parentElement.querySelector("code").textContent);
  button.textContent = "Copied";
  copied.textContent = `The call with ${tool} was copied.`;
  setTimeout(() => Object.assign(button, { textContent: "Copy" }), 2000);
}

/** Browsers have a clipboard for pages over TLS and of this machine; for others there is the old way. */
async function writeClipboard(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const box = Object.assign(document.createElement("textarea"), { value: text });
  document.body.append(box);
  box.select();
  document.execCommand("copy");
  box.remove();
}

let soon;
form.addEventListener("submit", predict);
form.addEventListener("input", () => {
  clearTimeout(soon);
  soon = setTimeout(updateCalls, 150);
  showPictures(form, model);
});
form.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
});
for (const button of document.querySelectorAll(".copy")) {
  button.hidden = false;
  button.addEventListener("click", () => copy(button));
}
showPictures(form, model);
if (trust && location.protocol === "https:") trust.hidden = false;
updateCalls();
watchTraffic();
waitUntilReady();
