// Commands and code that send the inputs of the form with other clients.

import { base64 } from "./cells.js";
import { bodyOf } from "./form.js";

// Longer request bodies are sent through standard input, because the length of command arguments is limited.
const MAX_ARGUMENT = 2 ** 16;
const METHOD = "inference.GRPCInferenceService/ModelInfer";
const NO_NULL = "# Only JSON can represent missing text. Use curl.";

/** Return the commands and the code by client. */
export function callsOf(inputs, model) {
  const root = new URL(".", location.href);
  return {
    curl: curl(inputs, model, `${root}${model.path}/infer`),
    python: python(inputs, model, root),
    grpcurl: grpcurl(inputs, model),
  };
}

function curl(inputs, model, url) {
  const certificate = model.certificates ? "--cert CLIENT.crt --key CLIENT.key " : "";
  const command = `curl ${certificate}${authorization(model)}${quoted(url)} -d`;
  return withBody(command, bodyOf(inputs), "@-");
}

function python(inputs, model, root) {
  if (inputs.some(isIncomplete)) return NO_NULL;
  const tensors = inputs.map((each) => {
    const data = withoutNull(each).map((text) => (each.raw ? `b64decode(${text})` : (LITERALS[text] ?? text)));
    return `    (${JSON.stringify(each.name)}, "${each.datatype}", [${each.shape.join(", ")}], [${data.join(", ")}]),`;
  });
  const tls = root.protocol === "https:" ? ", ssl=True" : "";
  const headers = model.keys ? `, headers={"Authorization": f"Bearer {os.environ['API_KEY']}"}` : "";
  return [
    ...(model.keys ? ["import os", ""] : []),
    ...(inputs.some((each) => each.raw) ? ["from base64 import b64decode", ""] : []),
    "import numpy as np",
    "from tritonclient.http import InferenceServerClient, InferInput",
    "from tritonclient.utils import triton_to_np_dtype",
    "",
    "inputs = []",
    "for name, datatype, shape, data in [",
    ...tensors,
    "]:",
    "    inputs.append(InferInput(name, shape, datatype))",
    "    inputs[-1].set_data_from_numpy(np.array(data, triton_to_np_dtype(datatype)).reshape(shape))",
    `client = InferenceServerClient(${JSON.stringify(root.host + root.pathname.slice(0, -1))}${tls})`,
    `response = client.infer(${JSON.stringify(model.name)}, inputs${headers})`,
    'for output in response.get_response()["outputs"]:',
    '    print(output["name"], response.as_numpy(output["name"]))',
  ].join("\n");
}

const LITERALS = { null: "None", true: "True", false: "False" };

function grpcurl(inputs, model) {
  const raw = model.inputs.find(({ name, contents }) => !contents && inputs.some((each) => each.name === name));
  if (raw) {
    return `# grpcurl cannot send ${raw.datatype}, which has no typed contents on gRPC. Use tritonclient.grpc for Python.`;
  }
  if (inputs.some(isIncomplete)) return NO_NULL;
  const tls = model.tls ? "" : "-plaintext ";
  const certificate = model.certificates ? "-cert CLIENT.crt -key CLIENT.key " : "";
  const tensors = inputs.map((each) => {
    const data = withoutNull(each).map((text) => (each.raw ? text : typed(text, each.datatype)));
    const head = `"name":${JSON.stringify(each.name)},"shape":[${each.shape}],"datatype":"${each.datatype}"`;
    return `{${head},"contents":{"${each.contents}":[${data}]}}`;
  });
  const body = `{"model_name":${JSON.stringify(model.name)},"inputs":[${tensors}]}`;
  const target = `${quoted(`${location.hostname}:${model.grpcPort}`)} ${METHOD}`;
  const command = `grpcurl ${tls}${certificate}${authorization(model)}-d`;
  return withBody(command, body, "@", ` ${target}`);
}

function typed(text, datatype) {
  if (datatype === "BOOL") return { 0: "false", 1: "true" }[text] ?? text;
  if (datatype !== "BYTES") return text === "null" ? '"NaN"' : text;
  return JSON.stringify(base64(new TextEncoder().encode(JSON.parse(text))));
}

function authorization(model) {
  return model.keys ? '-H "Authorization: Bearer $API_KEY" ' : "";
}

function withBody(command, body, stdin, target = "") {
  const isLong = new TextEncoder().encode(body).length > MAX_ARGUMENT;
  return isLong ? `${command} ${stdin}${target} <<'END'\n${body}\nEND` : `${command} ${quoted(body)}${target}`;
}

function quoted(text) {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`;
}

function isIncomplete({ datatype, missing, data }) {
  return datatype === "BYTES" && missing === null && data.includes("null");
}

function withoutNull({ datatype, missing, data }) {
  return datatype === "BYTES" ? data.map((text) => (text === "null" ? JSON.stringify(missing) : text)) : data;
}
