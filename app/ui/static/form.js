// Conversion of the form to the tensors of a request.
//
// A model's input says how it is edited: `kind` is "number", "switch", "text", "lines", "grid" or
// "file". If all inputs are columns of a table, the form has two modes: "row" has a field for each
// input, and "table" has one field for CSV.
//
// A tensor is an input with `data` and the shape of this data. The elements in `data` are JSON
// text, not JavaScript values, so that no digits are lost.

import { base64, elementOf, isValue, readRows } from "./cells.js";

// Strings and other elements of JSON lists.
const JSON_ELEMENT = /"(?:[^"\\]|\\.)*"|[^\s[\],]+/g;

/**
 * Return the tensors in the form, without empty optional ones. Throw an Error that names the
 * invalid value.
 */
export async function readForm(form, model) {
  const mode = form.elements.mode?.value;
  if (mode === "table") return readTable(form.elements.csv.value, model.inputs);

  const read = mode === "row" ? readCell : readField;
  const fields = [...form.querySelectorAll("[data-input]")];
  const tensors = await Promise.all(
    fields.map((field) => {
      const control = field.querySelector("input, select, textarea");
      return read(control, model.inputs[field.dataset.input]);
    }),
  );
  return tensors.filter((tensor) => tensor !== null);
}

/** Return the body of the infer request with these tensors. */
export function requestBody(tensors) {
  const inputs = tensors.map(({ name, shape, datatype, data }) => {
    const head = `"name":${JSON.stringify(name)},"shape":[${shape}],"datatype":"${datatype}"`;
    return `{${head},"data":[${data}]}`;
  });
  return `{"inputs":[${inputs}]}`;
}

/**
 * Return the tensor in a field of a table's row, which has one value. An empty field is a missing
 * value, but if its input is optional, return null.
 */
function readCell(control, input) {
  const text = textOf(control);
  if (isEmpty(text) && input.optional) return null;
  return tensorOf(input, [elementOf(text, input)]);
}

/**
 * Return the tensor in a field, or null if it is empty and its input is optional.
 *
 * An empty field of BYTES contains an empty text, or no texts. Other empty fields are invalid.
 */
async function readField(control, input) {
  if (input.kind === "file") return readFileField(control.files, input);

  const text = textOf(control);
  if (isEmpty(text) && input.optional) return null;
  if (isEmpty(text) && input.datatype !== "BYTES") {
    throw new Error(`${input.name}: expected numbers.`);
  }
  switch (input.kind) {
    case "lines":
      return readList(text, input) ?? tensorOf(input, readLines(text));
    case "grid":
      return readList(text, input) ?? readGrid(text, input);
    default: // a number, a switch or one text
      return tensorOf(input, [elementOf(text, input, { isPresent: true })]);
  }
}

/** Return the text in a control. That of a checkbox is "true" or "false". */
function textOf(control) {
  return control.type === "checkbox" ? String(control.checked) : control.value;
}

function isEmpty(text) {
  return text.trim() === "";
}

/**
 * Return the tensor of the selected files, or without files that of the example. If there is no
 * example either and the input is optional, return null.
 */
async function readFileField(files, input) {
  let data = input.example.map((text) => JSON.stringify(text));
  if (files.length) data = await Promise.all([...files].map(readFile));
  if (!data.length && input.optional) return null;
  return tensorOf(input, data);
}

/** Return the content of a file as the JSON text of a base64 string. */
async function readFile(file) {
  const bytes = new Uint8Array(await file.arrayBuffer());
  return JSON.stringify(base64(bytes));
}

/**
 * Return one tensor for each column of a table, without empty optional ones. If the first row
 * contains no name of an input, the columns follow the inputs.
 */
function readTable(text, inputs) {
  const rows = readRows(text, false);
  if (!rows.length) throw new Error("The table is empty.");
  let columns = inputs;
  let body = rows;
  const hasHeader = rows[0].some((cell) => findInput(cell.text, inputs));
  if (hasHeader) {
    columns = readHeader(rows[0], inputs);
    body = rows.slice(1);
  }
  if (!body.length) throw new Error("The table has no rows.");
  checkTableRows(body, columns.length);

  const tensors = [];
  for (const [index, input] of columns.entries()) {
    const cells = body.map((row) => row[index]);
    const isAbsent = cells.every((cell) => cell.text === "" && !cell.isQuoted);
    if (isAbsent && input.optional) continue;
    tensors.push(tensorOf(input, readColumn(cells, input)));
  }
  return tensors;
}

/** Return the inputs that the cells of a header name. */
function readHeader(cells, inputs) {
  return cells.map(({ text: name }) => {
    const input = findInput(name, inputs);
    if (!input) throw new Error(`The model has no input "${name}".`);
    return input;
  });
}

/** Throw an Error that names the first row with another number of cells. */
function checkTableRows(rows, columnCount) {
  const index = rows.findIndex((row) => row.length !== columnCount);
  if (index === -1) return;
  const cells = counted(rows[index].length, "cell");
  throw new Error(`Row ${index + 1} has ${cells}, expected ${columnCount}.`);
}

/** Return the elements of a column of a table. Empty quotes are an empty text. */
function readColumn(cells, input) {
  return cells.map(({ text, isQuoted }, row) =>
    elementOf(text, input, { isPresent: isQuoted, place: ` in row ${row + 1}` }),
  );
}

/** Return the input with this name. Prefer an exact match over one that ignores case. */
function findInput(name, inputs) {
  const exactMatch = inputs.find((input) => input.name === name);
  if (exactMatch) return exactMatch;
  const lowerName = name.toLowerCase();
  return inputs.find((input) => input.name.toLowerCase() === lowerName);
}

/** Return the tensor of rows of cells. Skip a header above numbers. */
function readGrid(text, input) {
  let rows = readRows(text, input.datatype !== "BYTES");
  if (hasGridHeader(rows, input.datatype)) rows = rows.slice(1);
  const grid = rows.map((row, index) => readGridRow(row, index, input));

  const data = grid.flat();
  const isMatrix = input.shape.length > 1 && grid.length > 1;
  const shape = isMatrix ? shapeOfLists(grid, input) : [grid.length, data.length];
  return tensorOf(input, data, { shape });
}

/** Return true if the first of several rows contains only words, although the input is numeric. */
function hasGridHeader(rows, datatype) {
  if (datatype === "BYTES" || rows.length < 2) return false;
  return !rows[0].some((cell) => isValue(cell.text, datatype));
}

/** Return the elements of a row. `index` does not count a header. */
function readGridRow(row, index, input) {
  return row.map(({ text, isQuoted }, column) => {
    const place = ` in row ${index + 1}, column ${column + 1}`;
    return elementOf(text, input, { isPresent: isQuoted, place });
  });
}

/** Return each line as the JSON text of a string, without empty lines at the end. */
function readLines(text) {
  const lines = text.replace(/\n+$/, "");
  if (lines === "") return [];
  return lines.split("\n").map((line) => JSON.stringify(line));
}

/**
 * Return the tensor of a JSON list, or null if the text is not one. The parsed list gives the
 * shape. The elements are taken from the text, so that no digits are lost.
 */
function readList(text, input) {
  const list = parseList(text, input);
  if (list === null) return null;

  const shape = shapeOfLists(list, input);
  const elements = text.match(JSON_ELEMENT) ?? [];
  const data = elements.map(normalizeElement);
  if (data.some((element) => Math.abs(Number(element)) === Infinity)) {
    throw new Error(`${input.name}: JSON has no infinity.`);
  }
  return tensorOf(input, data, { shape, isNested: shape.length > 1 });
}

/**
 * Parse a JSON list. Return null if the text does not begin like one, or for BYTES if it is not
 * valid JSON: it is then plain text. For numbers, throw an Error instead.
 */
function parseList(text, input) {
  if (!text.trimStart().startsWith("[")) return null;
  try {
    return JSON.parse(text);
  } catch (error) {
    if (input.datatype === "BYTES") return null;
    throw new Error(`${input.name}: ${error.message}`);
  }
}

/** Return a JSON string with as few escapes as possible, and another element as it is. */
function normalizeElement(element) {
  return element.startsWith('"') ? JSON.stringify(JSON.parse(element)) : element;
}

/**
 * Return the shape of nested lists, one level after the other.
 *
 * Throw an Error unless all lists of a level have the same length, and the rows have the length
 * that the input declares.
 */
function shapeOfLists(list, input) {
  const shape = [];
  let lists = [list];
  let items = list;
  while (items.some(Array.isArray)) {
    if (!items.every(Array.isArray)) {
      throw new Error(`${input.name}: a list must contain either lists or values.`);
    }
    const size = lists[0].length;
    checkLengths(lists, size, { subject: `${input.name}: block`, item: "row" });
    shape.push(size);
    lists = items;
    items = lists.flat();
  }

  const isFlat = shape.length === 0;
  if (isFlat) return [list.length];
  const rowLength = declaredRowLength(input) ?? lists[0].length;
  checkLengths(lists, rowLength, { subject: `${input.name}: row`, item: "value" });
  return [...shape, rowLength];
}

/** Return the last size of the declared shape, or null if it is variable or the only one. */
function declaredRowLength({ shape }) {
  const hasRows = shape.length > 1 && shape.at(-1) !== -1;
  return hasRows ? shape.at(-1) : null;
}

/**
 * Throw an Error that names the first list of a level whose length is not `size`. It begins with
 * `subject` and the number of this list.
 */
function checkLengths(lists, size, { subject, item }) {
  const index = lists.findIndex((list) => list.length !== size);
  if (index === -1) return;
  const items = counted(lists[index].length, item);
  throw new Error(`${subject} ${index + 1} has ${items}, expected ${size}.`);
}

function counted(count, noun) {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

/**
 * Return the input with its data.
 *
 * Data has the declared shape, if it fits. Otherwise, and if it is a nested list, it has the
 * given shape: the one that the user has entered.
 */
function tensorOf(input, data, { shape = [data.length], isNested = false } = {}) {
  const fittingShape = isNested ? null : fitShape(input.shape, data.length);
  return { ...input, shape: fittingShape ?? shape, data };
}

/**
 * Return the declared shape with the number of rows or columns in place of -1.
 *
 * Return null if there is no such number, or if several sizes are variable.
 */
function fitShape(declared, count) {
  const variableSizes = declared.filter((size) => size === -1);
  if (variableSizes.length === 0) return declared;
  if (variableSizes.length > 1) return null;

  const fixedSizes = declared.filter((size) => size !== -1);
  const fixedProduct = fixedSizes.reduce((product, size) => product * size, 1);
  const variableSize = fixedProduct === 0 ? 0 : count / fixedProduct;
  if (!Number.isInteger(variableSize)) return null;
  return declared.map((size) => (size === -1 ? variableSize : size));
}
