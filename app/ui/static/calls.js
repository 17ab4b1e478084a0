// Commands and code that send the tensors of the form with other clients.
//
// A command is for a POSIX shell, in which API_KEY contains the key of the user. Elements of
// tensors are JSON text. Two kinds of tensors cannot be sent by every client:
//
//   - A missing text is null, which only JSON can represent. The input may declare a text that
//     replaces it, `missing`. Otherwise, only curl can send the tensor.
//   - grpcurl sends typed contents. `contents` is the name of their field, or null for a datatype
//     that has none.
//
// The elements of a `raw` tensor are bytes in base64.

import { base64 } from "./cells.js";
import { requestBody } from "./form.js";

// Longer bodies are sent through standard input, because the length of arguments is limited.
const MAX_ARGUMENT_BYTES = 2 ** 16;
const GRPC_METHOD = "inference.GRPCInferenceService/ModelInfer";
const AUTHORIZATION = '-H "Authorization: Bearer $API_KEY" ';
const ONLY_JSON = "# Only JSON can represent missing text. Use curl.";
const PYTHON_LITERALS = { null: "None", true: "True", false: "False" };
const BOOL_LITERALS = { 0: "false", 1: "true" };

/** Return the commands and the code by client. */
export function callsOf(tensors, model) {
  const root = new URL(".", location.href);
  return {
    curl: curlCommand(tensors, model, root),
    python: pythonCode(tensors, model, root),
    grpcurl: grpcurlCommand(tensors, model),
  };
}

/** Return a curl command with the same body as the request of the page. */
function curlCommand(tensors, model, root) {
  let command = "curl ";
  if (model.certificates) command += "--cert CLIENT.crt --key CLIENT.key ";
  if (model.keys) command += AUTHORIZATION;
  command += `${quoteArgument(`${root}${model.path}/infer`)} -d`;
  return withBody(command, requestBody(tensors), { standardInput: "@-" });
}

/** Return a grpcurl command, or a comment that says why there is none. */
function grpcurlCommand(tensors, model) {
  const names = tensors.map((tensor) => tensor.name);
  const untypedInput = model.inputs.find((input) => !input.contents && names.includes(input.name));
  if (untypedInput) {
    const problem = `${untypedInput.datatype}, which has no typed contents on gRPC`;
    return `# grpcurl cannot send ${problem}. Use tritonclient.grpc for Python.`;
  }
  if (tensors.some(hasMissingText)) return ONLY_JSON;

  let command = "grpcurl ";
  if (!model.tls) command += "-plaintext ";
  if (model.certificates) command += "-cert CLIENT.crt -key CLIENT.key ";
  if (model.keys) command += AUTHORIZATION;
  command += "-d";

  const inputs = tensors.map(grpcInput);
  const body = `{"model_name":${JSON.stringify(model.name)},"inputs":[${inputs}]}`;
  const address = quoteArgument(`${location.hostname}:${model.grpcPort}`);
  return withBody(command, body, { standardInput: "@", target: ` ${address} ${GRPC_METHOD}` });
}

/** Return a tensor as an input of ModelInferRequest, in protobuf's JSON form. */
function grpcInput(tensor) {
  const data = elementsOf(tensor).map((element) => grpcElement(element, tensor));
  const name = JSON.stringify(tensor.name);
  const head = `"name":${name},"shape":[${tensor.shape}],"datatype":"${tensor.datatype}"`;
  return `{${head},"contents":{"${tensor.contents}":[${data}]}}`;
}

/** Return an element in protobuf's JSON form: bytes are base64, and a missing number is NaN. */
function grpcElement(element, { datatype, raw }) {
  if (raw) return element;
  if (datatype === "BOOL") return BOOL_LITERALS[element] ?? element;
  if (datatype === "BYTES") {
    const bytes = new TextEncoder().encode(JSON.parse(element));
    return JSON.stringify(base64(bytes));
  }
  return element === "null" ? '"NaN"' : element;
}

/**
 * Return the command with the body of the request: as an argument, or through standard input if it
 * is long. `standardInput` is the argument for this, and `target` follows the body.
 */
function withBody(command, body, { standardInput, target = "" }) {
  const { length } = new TextEncoder().encode(body);
  if (length <= MAX_ARGUMENT_BYTES) return `${command} ${quoteArgument(body)}${target}`;
  return `${command} ${standardInput}${target} <<'END'\n${body}\nEND`;
}

/** Quote an argument for the shell, if necessary. */
function quoteArgument(text) {
  if (/^[\w@%+=:,./-]+$/.test(text)) return text;
  return `'${text.replaceAll("'", `'"'"'`)}'`;
}

/** Return code for Python's tritonclient, or a comment that says why there is none. */
function pythonCode(tensors, model, root) {
  if (tensors.some(hasMissingText)) return ONLY_JSON;

  const lines = [];
  if (model.keys) lines.push("import os", "");
  if (tensors.some((tensor) => tensor.raw)) lines.push("from base64 import b64decode", "");

  const address = JSON.stringify(root.host + root.pathname.slice(0, -1));
  const tls = root.protocol === "https:" ? ", ssl=True" : "";
  let headers = "";
  if (model.keys) headers = `, headers={"Authorization": f"Bearer {os.environ['API_KEY']}"}`;
  const array = "np.array(data, triton_to_np_dtype(datatype)).reshape(shape)";
  lines.push(
    "import numpy as np",
    "from tritonclient.http import InferenceServerClient, InferInput",
    "from tritonclient.utils import triton_to_np_dtype",
    "",
    "inputs = []",
    "for name, datatype, shape, data in [",
    ...tensors.map(pythonTuple),
    "]:",
    "    inputs.append(InferInput(name, shape, datatype))",
    `    inputs[-1].set_data_from_numpy(${array})`,
    `client = InferenceServerClient(${address}${tls})`,
    `response = client.infer(${JSON.stringify(model.name)}, inputs${headers})`,
    'for output in response.get_response()["outputs"]:',
    '    print(output["name"], response.as_numpy(output["name"]))',
  );
  return lines.join("\n");
}

/** Return a tensor as a line of a Python list. */
function pythonTuple(tensor) {
  const data = elementsOf(tensor).map((element) => pythonElement(element, tensor));
  const name = JSON.stringify(tensor.name);
  const shape = tensor.shape.join(", ");
  return `    (${name}, "${tensor.datatype}", [${shape}], [${data.join(", ")}]),`;
}

/** Return an element as a Python expression. */
function pythonElement(element, { raw }) {
  if (raw) return `b64decode(${element})`;
  return PYTHON_LITERALS[element] ?? element;
}

/** Return true if a text is missing, and the input declares no text that replaces it. */
function hasMissingText({ datatype, missing, data }) {
  return datatype === "BYTES" && missing === null && data.includes("null");
}

/** Return the elements of a tensor, with the declared replacement of missing texts. */
function elementsOf({ datatype, missing, data }) {
  if (datatype !== "BYTES") return data;
  return data.map((element) => (element === "null" ? JSON.stringify(missing) : element));
}
