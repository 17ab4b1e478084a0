// Entry point of the page: waits until the model is ready, sends the form, and shows the response.

import { callsOf } from "./calls.js";
import { readForm, requestBody } from "./form.js";
import { showPictures } from "./pictures.js";
import { showResponse } from "./response.js";
import { watchTraffic } from "./traffic.js";

const OUTDATED =
  "This is the last request that the service accepted. Send the form to update it.";
const READY_INTERVAL_MS = 1000;
const COPIED_MS = 2000;
const MAX_CALL_LENGTH = 20000;
const MAX_ERROR_LENGTH = 500;

const model = JSON.parse(byId("model").textContent);
const form = byId("form");
const fieldset = byId("enabled");
const sendButton = byId("send");
const modelState = byId("state");
const responseStatus = byId("status");
const problem = byId("problem");
const outputs = byId("outputs");
const outdatedNote = byId("outdated");
const copiedNote = byId("copied");
// The complete texts of the calls by client. The page may show only their start.
const calls = new Map();

function byId(id) {
  return document.getElementById(id);
}

/** Enable the form as soon as the model is ready. */
async function waitUntilReady() {
  while (modelState.dataset.state !== "Ready") {
    responseStatus.textContent = "You can send requests as soon as the model is ready.";
    await new Promise((resolve) => setTimeout(resolve, READY_INTERVAL_MS));
    const response = await fetch(`${model.path}/ready`).catch(() => null);
    if (response?.ok) {
      modelState.textContent = "Ready";
      modelState.dataset.state = "Ready";
    }
  }
  responseStatus.textContent =
    "Send a request to see its response here, and the same request with other clients.";
  fieldset.disabled = false;
}

/** Send the form, and show the response or the error. Only one request is sent at a time. */
async function predict(event) {
  event.preventDefault();
  if (sendButton.ariaDisabled === "true") return;

  sendButton.ariaDisabled = "true";
  outdatedNote.textContent = "";
  problem.textContent = "";
  responseStatus.textContent = "Waiting for the response …";
  outputs.classList.add("stale");
  try {
    const tensors = await readForm(form, model);
    const response = await infer(tensors);
    showResponse(outputs, response.text, model);
    showCalls(tensors);
    showStatus(response);
  } catch (error) {
    responseStatus.textContent = "";
    outputs.replaceChildren();
    problem.textContent = error.message;
    outdatedNote.textContent = OUTDATED;
  } finally {
    outputs.classList.remove("stale");
    sendButton.ariaDisabled = "false";
  }
}

/**
 * Return the text of the response, the id of the request and its time in milliseconds. Throw an
 * Error with the service's message if it rejects the request.
 */
async function infer(tensors) {
  const start = performance.now();
  const response = await fetch(`${model.path}/infer`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: requestBody(tensors),
  }).catch(() => {
    throw new Error("The service is not reachable.");
  });
  const text = await response.text();
  const milliseconds = performance.now() - start;

  if (!response.ok) throw new Error(`${errorMessageOf(text)} (${response.status})`);
  return { text, milliseconds, requestId: response.headers.get("X-Request-Id") };
}

/** Return the message in the body of an error response, which may come from a proxy. */
function errorMessageOf(text) {
  try {
    return JSON.parse(text).error ?? text;
  } catch {
    return text.slice(0, MAX_ERROR_LENGTH);
  }
}

/** Show the time and the id of an answered request. */
function showStatus({ milliseconds, requestId }) {
  const id = document.createElement("code");
  id.textContent = requestId;
  const time = milliseconds.toFixed(milliseconds < 10 ? 1 : 0);
  responseStatus.replaceChildren(`Round trip: ${time} ms. Request `, id);
}

/** Show an accepted request as the calls of other clients. The service could reject another one. */
function showCalls(tensors) {
  for (const [tool, text] of Object.entries(callsOf(tensors, model))) {
    const isLong = text.length > MAX_CALL_LENGTH;
    const code = document.querySelector(`[data-tool="${tool}"] code`);
    code.textContent = isLong ? `${text.slice(0, MAX_CALL_LENGTH)} …` : text;
    calls.set(tool, text);
  }
  byId("calls").hidden = false;
}

/** Copy the call next to the button. */
async function copyCall(button) {
  const { tool } = button.parentElement.dataset;
  await writeClipboard(calls.get(tool));
  button.textContent = "Copied";
  copiedNote.textContent = `Copied the request with ${tool}.`;
  setTimeout(() => {
    button.textContent = "Copy";
  }, COPIED_MS);
}

/** Copy text. Browsers provide the clipboard API only over TLS and on localhost. */
async function writeClipboard(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);

  const textarea = document.createElement("textarea");
  textarea.value = text;
  document.body.append(textarea);
  textarea.select();
  document.execCommand("copy");
  textarea.remove();
}

function onInput() {
  outdatedNote.textContent = OUTDATED;
  showPictures(form, model);
}

function onKeyDown(event) {
  const isSubmit = event.key === "Enter" && (event.ctrlKey || event.metaKey);
  if (isSubmit) form.requestSubmit();
}

form.addEventListener("submit", predict);
form.addEventListener("input", onInput);
form.addEventListener("keydown", onKeyDown);
for (const button of document.querySelectorAll(".copy")) {
  button.addEventListener("click", () => copyCall(button));
}
// Without TLS, there is no certificate to trust.
byId("trust").hidden = location.protocol !== "https:";
showPictures(form, model);
watchTraffic();
waitUntilReady();
