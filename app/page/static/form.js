// What the form holds, as a request. Each element of a tensor is kept as the text that JSON has for it, so that no digit
// is lost; what is no number is sent as it was written, for the service to say what is wrong with it.

const NUMBER = /^-?(0|[1-9]\d*)(\.\d+)?(e[+-]?\d+)?$/i;
const LOOSE_NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;
const MISSING = /^(null|none|nan|na|n\/a)?$/i;
const BOOLEAN = /^(true|false)$/i;
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
  if (input.kind === "number") return tensor(input, [element(text, input.datatype)]);
  if (input.kind === "text") return tensor(input, [element(text, input.datatype, !isCell)]);
  if (text.trimStart().startsWith("[")) return readJson(text, input);
  if (input.kind === "lines") return tensor(input, texts(text));
  const rows = withoutHeader(readRows(text.trim(), input.datatype !== "BYTES"), input.datatype);
  return tensor(input, rows.flat(), [rows.length, rows[0]?.length ?? 0]);
}

/** The columns of a table, named by its first line, or in the order of the inputs where that names none. */
function readTable(text, inputs) {
  if (!text.trim()) throw new Error("The table is empty.");
  const rows = readRows(text.trim(), false);
  const named = rows[0].some(([name]) => inputs.some((input) => input.name === name));
  const names = named ? rows.shift().map(([name]) => name) : inputs.map((input) => input.name);
  return names.map((name, column) => {
    const input = inputs.find((each) => each.name === name);
    if (!input) throw new Error(`The model has no input "${name}".`);
    const cells = rows.map((row) => row[column] ?? [""]);
    return tensor(input, cells.map(([cell, quoted]) => element(cell, input.datatype, quoted)));
  });
}

/** Lines of cells, [text, whether it was in quotes]; what separates them is found out. */
function readRows(text, isNumeric) {
  const bare = (isNumeric ? text : text.split("\n", 1)[0]).replace(/"[^"]*"/g, "");
  const mark = ["\t", ";", ","].find((each) => bare.includes(each));
  if (!mark && isNumeric) return text.split("\n").map((line) => line.trim().split(/\s+/).map((cell) => [cell, false]));
  const pattern = new RegExp(`("(?:[^"]|"")*"|[^${mark ?? ","}\n]*)(${mark ?? ","}|\n|$)`, "g");
  const rows = [[]];
  for (const [, cell, end] of text.matchAll(pattern)) {
    const quoted = /^".*"$/s.test(cell);
    rows.at(-1).push([quoted ? cell.slice(1, -1).replaceAll('""', '"') : cell.trim(), quoted]);
    if (end === "\n") rows.push([]);
    if (end === "") break;
  }
  return rows;
}

/** The elements of `rows`, less a first line that names columns of numbers. */
function withoutHeader(rows, datatype) {
  const read = rows.map((row) => row.map(([text, quoted]) => element(text, datatype, quoted)));
  const isHeader = datatype !== "BYTES" && read.length > 1 && read[0].every((each) => each.startsWith('"'));
  return isHeader ? read.slice(1) : read;
}

function texts(text) {
  const lines = text.replace(/\n+$/, "");
  return lines === "" ? [] : lines.split("\n").map((line) => JSON.stringify(line));
}

function readJson(text, input) {
  const nested = parse(text, input);
  const shape = [];
  for (let each = nested; Array.isArray(each); each = each[0]) shape.push(each.length);
  return tensor(input, text.match(ELEMENT) ?? [], shape);
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

/** A cell as JSON has it; an empty one is missing, unless it is text and `present`. */
function element(text, datatype, present = false) {
  if (datatype === "BYTES") return text === "" && !present ? "null" : JSON.stringify(text);
  const word = text.trim();
  if (MISSING.test(word)) return "null";
  if (datatype === "BOOL" && BOOLEAN.test(word)) return word.toLowerCase();
  if (NUMBER.test(word)) return word;
  const number = LOOSE_NUMBER.test(word) ? Number(word) : NaN;
  return Number.isFinite(number) ? String(number) : JSON.stringify(word);
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
