// What the form holds, as a request. Each element is kept as the text that JSON has for it, so that no digit is lost.

import { element, isValue, readRows } from "./cells.js";

const ELEMENT = /"(?:[^"\\]|\\.)*"|[^\s[\],]+/g;

/** The inputs that the form holds, without the optional ones that are empty; throws an Error that says what is wrong. */
export async function readForm(form, model) {
  const mode = form.elements.mode?.value;
  if (mode === "table") return readTable(form.elements.csv.value, model.inputs);
  const fields = [...form.querySelectorAll("[data-input]")];
  const read = fields.map((field) => readField(field, model.inputs[field.dataset.input], mode === "row"));
  return (await Promise.all(read)).filter(Boolean);
}

/** The body of an infer request, spelt as the service spells its own. */
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
  if (isEmpty) throw new Error(`${input.name}: numbers are expected here.`);
  if (["number", "switch"].includes(input.kind)) return tensor(input, [element(text, input)]);
  if (input.kind === "text") return tensor(input, [element(text, input, !isCell)]);
  const list = text.trimStart().startsWith("[") ? parse(text, input) : null;
  if (list) return readList(list, text, input);
  if (input.kind === "lines") return tensor(input, texts(text));
  const rows = readGrid(readRows(text, input.datatype !== "BYTES"), input);
  const isMatrix = input.shape.length > 1 && rows.length > 1;
  return tensor(input, rows.flat(), isMatrix ? sizesOf(rows, input) : [rows.length, rows.flat().length]);
}

/** The columns of a table, named by its first line, or in the order of the inputs where that names none. */
function readTable(text, inputs) {
  const rows = readRows(text, false);
  if (!rows.length) throw new Error("The table is empty.");
  const named = rows[0].some(([name]) => inputNamed(name, inputs));
  const columns = named ? rows.shift().map(([name]) => inputNamed(name, inputs) ?? name) : inputs;
  const stranger = columns.find((column) => typeof column === "string");
  if (stranger !== undefined) throw new Error(`The model has no input "${stranger}".`);
  if (!rows.length) throw new Error("The table has no rows.");
  const odd = rows.findIndex((row) => row.length !== columns.length);
  if (odd >= 0) {
    const expected = named ? `the first line names ${columns.length}` : `the model has ${columns.length} inputs`;
    throw new Error(`Row ${odd + 1} has ${counted(rows[odd].length, "cell")}, ${expected}.`);
  }
  return columns.map((input, column) => {
    const cells = rows.map((row) => row[column]);
    return tensor(input, cells.map(([cell, quoted], row) => element(cell, input, quoted, ` in row ${row + 1}`)));
  });
}

/** The input of that name, in capitals or not where none has it to the letter. */
function inputNamed(name, inputs) {
  const lower = name.toLowerCase();
  return inputs.find((input) => input.name === name) ?? inputs.find((input) => input.name.toLowerCase() === lower);
}

/** The elements of `rows`, less a first line that names columns of numbers. */
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

/** The tensor of a JSON list, whose elements are taken from its text. */
function readList(list, text, input) {
  const shape = sizesOf(list, input);
  const data = text.match(ELEMENT) ?? [];
  if (data.some((each) => Number(each) === Infinity || Number(each) === -Infinity)) {
    throw new Error(`${input.name}: JSON has no infinity.`);
  }
  return tensor(input, data, shape, shape.length === 1);
}

/** The sizes of nested lists, of which those of a depth are to be equal, and rows as long as the shape says. */
function sizesOf(list, { name, shape: declared }) {
  const sizes = [];
  let isLast = false;
  for (let lists = [list]; !isLast; lists = lists.flat()) {
    const inner = lists.flat();
    isLast = !inner.some(Array.isArray);
    if (!isLast && !inner.every(Array.isArray)) throw new Error(`${name}: a list holds lists or values, not both.`);
    const isWide = isLast && sizes.length && declared.length > 1 && declared.at(-1) !== -1;
    const size = isWide ? declared.at(-1) : lists[0].length;
    const odd = lists.findIndex((each) => each.length !== size);
    if (odd >= 0) {
      const [whole, part] = isLast ? ["row", "value"] : ["block", "row"];
      const expected = `${size} ${size === 1 ? "is" : "are"} expected`;
      throw new Error(`${name}: ${whole} ${odd + 1} has ${counted(lists[odd].length, part)}, ${expected}.`);
    }
    sizes.push(size);
  }
  return sizes;
}

function counted(count, word) {
  return `${count} ${word}${count === 1 ? "" : "s"}`;
}

/** The list that JSON text holds; null where it is none and may be text that only begins like one. */
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
  return Promise.all(
    [...files].map(async (file) => {
      const reader = new FileReader();
      const read = new Promise((resolve, reject) => Object.assign(reader, { onload: resolve, onerror: reject }));
      reader.readAsDataURL(file);
      await read;
      return JSON.stringify(reader.result.slice(reader.result.indexOf(",") + 1));
    }),
  );
}

/** The tensor of `data`; what is `flat` takes the declared shape as far as that goes, and else that `seen`. */
function tensor({ name, datatype, shape: declared }, data, seen = [data.length], flat = true) {
  const open = declared.filter((size) => size === -1).length;
  const rest = declared.reduce((product, size) => (size === -1 ? product : product * size), 1);
  const count = rest && data.length / rest;
  const fits = open === 0 || (open === 1 && Number.isInteger(count));
  const shape = flat && fits ? declared.map((size) => (size === -1 ? count : size)) : seen;
  return { name, shape, datatype, data };
}
