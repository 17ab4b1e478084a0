// Entry point of the page: waits until the model is ready, sends the form, and shows the response.

import { callsOf } from "./calls.js";
import { bodyOf, readForm } from "./form.js";
import { showPictures } from "./pictures.js";
import { showResponse } from "./response.js";
import { watchTraffic } from "./traffic.js";

const model = JSON.parse(document.getElementById("model").textContent);
const [form, enabled, send, state, status, problem, outputs, outdated, copied] = [
  ..."form enabled send state status problem outputs outdated copied".split(" "),
].map((id) => document.getElementById(id));
const OUTDATED = "This is the last request that the service accepted. Send the form to update it.";
const calls = new Map();

async function waitUntilReady() {
  while (state.dataset.state !== "Ready") {
    status.textContent = "You can send requests as soon as the model is ready.";
    await new Promise((resolve) => setTimeout(resolve, 1000));
    const response = await fetch(`${model.path}/ready`).catch(() => null);
    if (response?.ok) state.dataset.state = state.textContent = "Ready";
  }
  status.textContent = "Send a request to see its response here, and the same request with other clients.";
  enabled.disabled = false;
}

async function predict(event) {
  event.preventDefault();
  if (send.ariaDisabled === "true") return;
  send.ariaDisabled = "true";
  problem.textContent = outdated.textContent = "";
  status.textContent = "Waiting for the response …";
  outputs.classList.add("stale");
  try {
    const inputs = await readForm(form, model);
    const start = performance.now();
    const options = { method: "POST", headers: { "Content-Type": "application/json" }, body: bodyOf(inputs) };
    const response = await fetch(`${model.path}/infer`, options).catch(() => {
      throw new Error("The service is not reachable.");
    });
    const text = await response.text();
    const milliseconds = performance.now() - start;
    if (!response.ok) throw new Error(`${errorOf(text)} (${response.status})`);
    showResponse(outputs, text, model);
    showCalls(inputs);
    const id = Object.assign(document.createElement("code"), { textContent: response.headers.get("X-Request-Id") });
    status.replaceChildren(`Round trip: ${milliseconds.toFixed(milliseconds < 10 ? 1 : 0)} ms. Request `, id);
  } catch (error) {
    status.textContent = "";
    outputs.replaceChildren();
    problem.textContent = error.message;
    outdated.textContent = OUTDATED;
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

/** Show an accepted request as the calls of other clients. The service could reject another request. */
function showCalls(inputs) {
  for (const [tool, text] of Object.entries(callsOf(inputs, model))) {
    const code = document.querySelector(`[data-tool="${tool}"] code`);
    code.textContent = text.length > 20000 ? `${text.slice(0, 20000)} …` : text;
    calls.set(tool, text);
  }
  document.getElementById("calls").hidden = false;
}

async function copy(button) {
  const { tool } = button.parentElement.dataset;
  await writeClipboard(calls.get(tool));
  button.textContent = "Copied";
  copied.textContent = `Copied the request with ${tool}.`;
  setTimeout(() => Object.assign(button, { textContent: "Copy" }), 2000);
}

/** Copy text. Browsers provide the clipboard API only over TLS and on localhost. */
async function writeClipboard(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const box = Object.assign(document.createElement("textarea"), { value: text });
  document.body.append(box);
  box.select();
  document.execCommand("copy");
  box.remove();
}

form.addEventListener("submit", predict);
form.addEventListener("input", () => {
  outdated.textContent = OUTDATED;
  showPictures(form, model);
});
form.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
});
for (const button of document.querySelectorAll(".copy")) button.addEventListener("click", () => copy(button));
document.getElementById("trust").hidden = location.protocol !== "https:";
showPictures(form, model);
watchTraffic();
waitUntilReady();
