// Check a client that ts-proto generates from protos/, with @grpc/grpc-js: node client.js GRPC_ADDRESS MODEL_NAME
import assert from "node:assert";
import * as grpc from "@grpc/grpc-js";
import {
  GRPCInferenceServiceClient,
  InferTensorContents,
  ModelInferRequest,
  ModelInferResponse,
  ModelMetadataResponse,
  ModelReadyResponse,
  ServerLiveResponse,
  ServerMetadataResponse,
  ServerReadyResponse,
} from "./open_inference_grpc";

type Data = Int8Array | Int16Array | Int32Array | BigInt64Array | Float32Array | Float64Array | Buffer[]
  | Uint8Array | Uint16Array | Uint32Array | BigUint64Array;

const [address, model] = process.argv.slice(2);
const client = new GRPCInferenceServiceClient(address, grpc.credentials.createInsecure());

// By datatype: the field of typed contents, if the datatype has one, and the elements in their raw format.
const TENSORS: Record<string, [keyof InferTensorContents | null, Data]> = {
  BOOL: ["boolContents", Uint8Array.of(1, 0, 1)],
  INT8: ["intContents", Int8Array.of(-128, 7, 127)],
  INT16: ["intContents", Int16Array.of(-32768, 7, 32767)],
  INT32: ["intContents", Int32Array.of(-(2 ** 31), 7, 2 ** 31 - 1)],
  INT64: ["int64Contents", BigInt64Array.of(-(2n ** 63n), 7n, 2n ** 63n - 1n)],
  UINT8: ["uintContents", Uint8Array.of(0, 7, 255)],
  UINT16: ["uintContents", Uint16Array.of(0, 7, 65535)],
  UINT32: ["uintContents", Uint32Array.of(0, 7, 2 ** 32 - 1)],
  UINT64: ["uint64Contents", BigUint64Array.of(0n, 7n, 2n ** 64n - 1n)],
  FP16: [null, Uint16Array.of(0x0001, 0xb555, 0x7bff)],
  BF16: [null, Uint16Array.of(0x0001, 0xbeab, 0x7f7f)],
  FP32: ["fp32Contents", Float32Array.of(1e-45, -1 / 3, 3.4028234663852886e38)],
  FP64: ["fp64Contents", Float64Array.of(5e-324, -1 / 3, Number.MAX_VALUE)],
  BYTES: ["bytesContents", [Buffer.of(), Buffer.from("é, 水"), Buffer.from("a\0b")]],
};

/** Call a method of the client and return its response. */
function call<Response>(
  send: (callback: (error: grpc.ServiceError | null, response: Response) => void) => void,
): Promise<Response> {
  return new Promise((resolve, reject) => send((error, response) => (error ? reject(error) : resolve(response))));
}

function infer(request: ModelInferRequest): Promise<ModelInferResponse> {
  return call<ModelInferResponse>((done) => client.modelInfer(request, done));
}

function toElements(datatype: string, data: Data): unknown[] {
  return datatype === "BOOL" ? Array.from(data as Uint8Array, Boolean) : Array.from<unknown>(data);
}

function toRaw(data: Data): Buffer {
  if (!Array.isArray(data)) {
    return Buffer.from(data.buffer as ArrayBuffer, data.byteOffset, data.byteLength);
  }
  return Buffer.concat(data.flatMap((each) => [toRaw(Uint32Array.of(each.length)), each]));
}

/** Check that the tensors of these datatypes are returned unchanged. */
async function checkEcho(datatypes: string[], raw: boolean, length: number): Promise<void> {
  const names = datatypes.map((each) => each.toLowerCase());
  const data = datatypes.map((each) => TENSORS[each][1].slice(0, length) as Data);
  const contents = datatypes.map((each, index) =>
    InferTensorContents.fromPartial({ [TENSORS[each][0] ?? ""]: toElements(each, data[index]) } as object),
  );
  const shape = [BigInt(length)];
  const response = await infer(
    ModelInferRequest.fromPartial({
      modelName: model,
      id: "42",
      inputs: datatypes.map((datatype, index) => ({
        name: `${names[index]}_in`, datatype, shape, contents: raw ? undefined : contents[index],
      })),
      outputs: names.map((name) => ({ name: `${name}_out` })),
      rawInputContents: raw ? data.map(toRaw) : [],
    }),
  );
  assert.deepStrictEqual([response.modelName, response.id], [model, "42"]);
  assert.deepStrictEqual(
    response.outputs.map(({ name, datatype, shape }) => ({ name, datatype, shape })),
    datatypes.map((datatype, index) => ({ name: `${names[index]}_out`, datatype, shape })),
  );
  assert.deepStrictEqual(response.rawOutputContents, raw ? data.map(toRaw) : []);
  for (const [index, output] of raw ? [] : response.outputs.entries()) {
    assert.deepStrictEqual(output.contents, contents[index]);
  }
}

async function checkTensors(): Promise<void> {
  const typed = Object.keys(TENSORS).filter((each) => TENSORS[each][0]);
  for (const [raw, datatypes] of [[true, Object.keys(TENSORS)], [false, typed]] as const) {
    for (const group of [...datatypes.map((each) => [each]), [...datatypes]]) {
      await checkEcho(group, raw, 3);
      await checkEcho(group, raw, 0);
    }
  }
}

async function checkServer(): Promise<void> {
  assert((await call<ServerLiveResponse>((done) => client.serverLive({}, done))).live);
  assert((await call<ServerReadyResponse>((done) => client.serverReady({}, done))).ready);
  assert((await call<ModelReadyResponse>((done) => client.modelReady({ name: model, version: "" }, done))).ready);
  const server = await call<ServerMetadataResponse>((done) => client.serverMetadata({}, done));
  assert(server.extensions.includes("model_configuration"));
  const metadata = await call<ModelMetadataResponse>((done) =>
    client.modelMetadata({ name: model, version: "" }, done),
  );
  assert.strictEqual(metadata.name, model);
  for (const datatype of Object.keys(TENSORS)) {
    const name = `${datatype.toLowerCase()}_in`;
    const { datatype: found, shape } = metadata.inputs.find((each) => each.name === name)!;
    assert.deepStrictEqual({ found, shape }, { found: datatype, shape: [-1n] });
  }
}

async function checkErrors(): Promise<void> {
  const inputs = [{ name: "fp64_in", datatype: "FP32", shape: [1n], contents: { fp32Contents: [1] } }];
  await assert.rejects(infer(ModelInferRequest.fromPartial({ modelName: model, inputs })), (error: grpc.ServiceError) =>
    error.code === grpc.status.INVALID_ARGUMENT && error.details.includes("fp64_in"),
  );
  await assert.rejects(infer(ModelInferRequest.fromPartial({ modelName: "no-such" })), (error: grpc.ServiceError) =>
    error.code === grpc.status.NOT_FOUND && error.details.includes("no-such"),
  );
}

async function main(): Promise<void> {
  await checkServer();
  await checkTensors();
  await checkErrors();
  client.close();
  console.log("ok");
}

main();
