// Conversion of pasted text to rows of cells, and of cells to JSON text.

const NUMBER = /^([+-]?)(?=\.?\d)0*(\d*)\.?(\d*)(e[+-]?\d+)?$/i;
const INFINITE = /^[+-]?inf(inity)?$/i;
const MISSING = /^(null|none|nan|na|n\/a)?$/i;
const BOOLEAN = /^(true|false)$/i;
const QUOTED = /^"[^"]*(?:""[^"]*)*"$/;

/** Split text into rows of [text, isQuoted] cells, without blank rows. Detect the delimiter. */
export function readRows(text, isNumeric) {
  const bare = text.replace(/"[^"]*"/g, '""').replace(/^(\s*\n)+/, "");
  const mark = ["\t", ";", ","].find((each) => (isNumeric ? bare : bare.split("\n", 1)[0]).includes(each));
  const rows = !mark && isNumeric ? text.split("\n").map(byBlanks) : byMark(text, mark ?? ",");
  return rows.filter(([[cell, quoted], ...more]) => cell !== "" || quoted || more.length);
}

function byBlanks(line) {
  return line.trim().split(/\s+/).map((cell) => [cell, false]);
}

function byMark(text, mark) {
  const pattern = new RegExp(`( *"[^"]*(?:""[^"]*)*" *|[^${mark}\n]*)(${mark}|\n|$)`, "g");
  const rows = [[]];
  for (const [, written, end] of text.matchAll(pattern)) {
    const cell = written.trim();
    const quoted = QUOTED.test(cell);
    if (cell.startsWith('"') && !quoted) {
      throw new Error(`A cell that begins with a quote must end with one: ${cell.slice(0, 60)}`);
    }
    rows.at(-1).push([quoted ? cell.slice(1, -1).replaceAll('""', '"') : cell, quoted]);
    if (end === "\n") rows.push([]);
    if (end === "") break;
  }
  return rows;
}

/** Return true if a cell is a number, a missing value or, for BOOL, a boolean. */
export function isValue(text, datatype) {
  const patterns = [MISSING, NUMBER, INFINITE, ...(datatype === "BOOL" ? [BOOLEAN] : [])];
  return patterns.some((each) => each.test(text.trim()));
}

/** Return a cell as JSON. Empty cells are null, except BYTES that are `present`. `place` is for error messages. */
export function element(text, { name, datatype }, present = false, place = "") {
  if (datatype === "BYTES") return text === "" && !present ? "null" : JSON.stringify(text);
  const word = text.trim();
  if (MISSING.test(word)) return "null";
  if (datatype === "BOOL" && BOOLEAN.test(word)) return word.toLowerCase();
  const subject = `${name}: ${JSON.stringify(word.slice(0, 60))}${place}`;
  if (!isValue(word, datatype)) {
    throw new Error(`${subject} is ${datatype === "BOOL" ? "neither true nor false" : "not a number"}.`);
  }
  if (!Number.isFinite(Number(word))) throw new Error(`${subject} is infinite. JSON has no infinity.`);
  return number(word);
}

/** Convert a number to JSON syntax with all its digits: no plus sign, no leading zeros, digits around the point. */
function number(word) {
  const [, sign, whole, fraction, exponent = ""] = word.match(NUMBER);
  return (sign === "-" ? "-" : "") + (whole || "0") + (fraction && `.${fraction}`) + exponent;
}

export function base64(bytes) {
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
}
