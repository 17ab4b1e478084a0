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
  const control = field.querySelector("input, textarea");
  const text = control.value.replaceAll("\r\n", "\n");
  if (input.optional && input.kind !== "switch" && text.trim() === "") return null;
  if (input.kind === "switch") return tensor(input, [String(control.checked)]);
  if (input.kind === "file") return tensor(input, await readFiles(control.files, input));
  const isEmpty = text.trim() === "" && !isCell && input.datatype !== "BYTES";
  if (isEmpty && input.kind !== "file") throw new Error(`${input.name}: numbers are expected here.`);
  if (input.kind === "number") return tensor(input, [element(text, input)]);
  if (input.kind === "text") return tensor(input, [element(text, input, !isCell)]);
  if (text.trimStart().startsWith("[")) return readJson(text, input);
  if (input.kind === "lines") return tensor(input, texts(text));
  const rows = readGrid(readRows(text, input.datatype !== "BYTES"), input);
  return tensor(input, rows.flat(), [rows.length, rows[0]?.length ?? 0]);
}

/** The columns of a table, named by its first line, or in the order of the inputs where that names none. */
function readTable(text, inputs) {
  const rows = readRows(text, false);
  if (!rows.length) throw new Error("The table is empty.");
  const named = rows[0].some(([name]) => inputs.some((input) => input.name === name));
  const names = named ? rows.shift().map(([name]) => name) : inputs.map((input) => input.name);
  const stranger = names.find((name) => !inputs.some((input) => input.name === name));
  if (stranger !== undefined) throw new Error(`The model has no input "${stranger}".`);
  if (!rows.length) throw new Error("The table has no rows.");
  const odd = rows.findIndex((row) => row.length !== names.length);
  if (odd >= 0) {
    const expected = named ? `the first line names ${names.length}` : `the model has ${names.length} inputs`;
    const count = rows[odd].length;
    throw new Error(`Row ${odd + 1} has ${count} ${count === 1 ? "cell" : "cells"}, ${expected}.`);
  }
  return names.map((name, column) => {
    const input = inputs.find((each) => each.name === name);
    const cells = rows.map((row) => row[column]);
    return tensor(input, cells.map(([cell, quoted], row) => element(cell, input, quoted, ` in row ${row + 1}`)));
  });
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

function readJson(text, input) {
  const nested = parse(text, input);
  const shape = [];
  for (let each = nested; Array.isArray(each); each = each[0]) shape.push(each.length);
  const data = text.match(ELEMENT) ?? [];
  if (data.some((each) => Number(each) === Infinity || Number(each) === -Infinity)) {
    throw new Error(`${input.name}: JSON has no infinity.`);
  }
  return tensor(input, data, shape);
}

function parse(text, input) {
  try {
    return JSON.parse(text);
  } catch (error) {
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

/** The tensor of `data`, whose shape is the declared one as far as that goes, and else `seen`. */
function tensor({ name, datatype, shape: declared }, data, seen = [data.length]) {
  const open = declared.filter((size) => size === -1).length;
  const rest = declared.reduce((product, size) => (size === -1 ? product : product * size), 1);
  let shape = seen;
  if (seen.length !== declared.length || seen.reduce((a, b) => a * b, 1) !== data.length) {
    const count = rest && data.length / rest;
    const fits = open === 1 && Number.isInteger(count);
    if (fits || open === 0) shape = declared.map((size) => (size === -1 ? count : size));
  }
  return { name, shape, datatype, data };
}
