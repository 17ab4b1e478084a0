// Conversion of the form to a request. Elements remain JSON text, so that no digits are lost.

import { base64, element, isValue, readRows } from "./cells.js";

const ELEMENT = /"(?:[^"\\]|\\.)*"|[^\s[\],]+/g;

/** Return the inputs, without empty optional ones. Throw an Error that names the invalid value. */
export async function readForm(form, model) {
  const mode = form.elements.mode?.value;
  if (mode === "table") return readTable(form.elements.csv.value, model.inputs);
  const fields = [...form.querySelectorAll("[data-input]")];
  const read = fields.map((field) => readField(field, model.inputs[field.dataset.input], mode === "row"));
  return (await Promise.all(read)).filter(Boolean);
}

/** Return the body of the infer request. */
export function bodyOf(inputs) {
  const tensors = inputs.map(
    ({ name, shape, datatype, data }) =>
      `{"name":${JSON.stringify(name)},"shape":[${shape}],"datatype":"${datatype}","data":[${data}]}`,
  );
  return `{"inputs":[${tensors}]}`;
}

async function readField(field, input, isCell) {
  const control = field.querySelector("input, select, textarea");
  const text = control.type === "checkbox" ? String(control.checked) : control.value;
  if (input.optional && text.trim() === "" && !input.example.length) return null;
  if (input.kind === "file") return tensor(input, await readFiles(control.files, input));
  const isEmpty = text.trim() === "" && !isCell && input.datatype !== "BYTES";
  if (isEmpty) throw new Error(`${input.name}: expected numbers.`);
  if (["number", "switch"].includes(input.kind)) return tensor(input, [element(text, input)]);
  if (input.kind === "text") return tensor(input, [element(text, input, !isCell)]);
  const list = text.trimStart().startsWith("[") ? parse(text, input) : null;
  if (list) return readList(list, text, input);
  if (input.kind === "lines") return tensor(input, texts(text));
  const rows = readGrid(readRows(text, input.datatype !== "BYTES"), input);
  const isMatrix = input.shape.length > 1 && rows.length > 1;
  return tensor(input, rows.flat(), isMatrix ? sizesOf(rows, input) : [rows.length, rows.flat().length]);
}

/** Return the columns of a table, without empty optional ones. Without a header line, they follow the inputs. */
function readTable(text, inputs) {
  const rows = readRows(text, false);
  if (!rows.length) throw new Error("The table is empty.");
  const named = rows[0].some(([name]) => inputNamed(name, inputs));
  const columns = named ? rows.shift().map(([name]) => inputNamed(name, inputs) ?? name) : inputs;
  const unknown = columns.find((column) => typeof column === "string");
  if (unknown !== undefined) throw new Error(`The model has no input "${unknown}".`);
  if (!rows.length) throw new Error("The table has no rows.");
  const odd = rows.findIndex((row) => row.length !== columns.length);
  if (odd >= 0) {
    throw new Error(`Row ${odd + 1} has ${counted(rows[odd].length, "cell")}, expected ${columns.length}.`);
  }
  return columns.flatMap((input, column) => {
    const cells = rows.map((row) => row[column]);
    if (input.optional && cells.every(([cell, quoted]) => cell === "" && !quoted)) return [];
    return [tensor(input, cells.map(([cell, quoted], row) => element(cell, input, quoted, ` in row ${row + 1}`)))];
  });
}

/** Return the input with that name. Prefer an exact match over one that ignores case. */
function inputNamed(name, inputs) {
  const lower = name.toLowerCase();
  return inputs.find((input) => input.name === name) ?? inputs.find((input) => input.name.toLowerCase() === lower);
}

/** Return the elements of `rows`. Skip a header line above numbers. */
function readGrid(rows, input) {
  const { datatype } = input;
  const isHeader = datatype !== "BYTES" && rows.length > 1 && !rows[0].some(([text]) => isValue(text, datatype));
  return (isHeader ? rows.slice(1) : rows).map((row, line) =>
    row.map(([text, quoted], column) => element(text, input, quoted, ` in row ${line + 1}, column ${column + 1}`)),
  );
}

function texts(text) {
  const lines = text.replace(/\n+$/, "");
  return lines === "" ? [] : lines.split("\n").map((line) => JSON.stringify(line));
}

/** Return the tensor of a JSON list. Take elements from its text, so that no digits are lost. */
function readList(list, text, input) {
  const shape = sizesOf(list, input);
  const elements = text.match(ELEMENT) ?? [];
  const data = elements.map((each) => (each.startsWith('"') ? JSON.stringify(JSON.parse(each)) : each));
  if (data.some((each) => Number(each) === Infinity || Number(each) === -Infinity)) {
    throw new Error(`${input.name}: JSON has no infinity.`);
  }
  return tensor(input, data, shape, shape.length === 1);
}

/** Return the shape of nested lists. Lists of one level must have the same length, and rows the declared length. */
function sizesOf(list, { name, shape: declared }) {
  const sizes = [];
  let isLast = false;
  for (let lists = [list]; !isLast; lists = lists.flat()) {
    const inner = lists.flat();
    isLast = !inner.some(Array.isArray);
    if (!isLast && !inner.every(Array.isArray)) throw new Error(`${name}: a list must contain either lists or values.`);
    const isWide = isLast && sizes.length && declared.length > 1 && declared.at(-1) !== -1;
    const size = isWide ? declared.at(-1) : lists[0].length;
    const odd = lists.findIndex((each) => each.length !== size);
    if (odd >= 0) {
      const [whole, part] = isLast ? ["row", "value"] : ["block", "row"];
      throw new Error(`${name}: ${whole} ${odd + 1} has ${counted(lists[odd].length, part)}, expected ${size}.`);
    }
    sizes.push(size);
  }
  return sizes;
}

function counted(count, word) {
  return `${count} ${word}${count === 1 ? "" : "s"}`;
}

/** Parse a JSON list. Return null for BYTES that are not valid JSON. */
function parse(text, input) {
  try {
    return JSON.parse(text);
  } catch (error) {
    if (input.datatype === "BYTES") return null;
    throw new Error(`${input.name}: ${error.message}`);
  }
}

async function readFiles(files, input) {
  if (!files.length) return input.example.map((each) => JSON.stringify(each));
  const read = async (file) => JSON.stringify(base64(new Uint8Array(await file.arrayBuffer())));
  return Promise.all([...files].map(read));
}

/** Return the input with its data. `flat` data gets the declared shape if it fits. Other data gets the shape `seen`. */
function tensor({ shape: declared, ...input }, data, seen = [data.length], flat = true) {
  const open = declared.filter((size) => size === -1).length;
  const rest = declared.reduce((product, size) => (size === -1 ? product : product * size), 1);
  const count = rest && data.length / rest;
  const fits = open === 0 || (open === 1 && Number.isInteger(count));
  const shape = flat && fits ? declared.map((size) => (size === -1 ? count : size)) : seen;
  return { ...input, shape, data };
}
