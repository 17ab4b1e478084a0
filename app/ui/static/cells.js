// Pasted text as rows of cells, and cells as JSON text.

const NUMBER = /^([+-]?)(?=\.?\d)0*(\d*)\.?(\d*)(e[+-]?\d+)?$/i;
const INFINITE = /^[+-]?inf(inity)?$/i;
const MISSING = /^(null|none|nan|na|n\/a)?$/i;
const BOOLEAN = /^(true|false)$/i;
const QUOTED = /^"[^"]*(?:""[^"]*)*"$/;

/** Split text into rows of cells, [text, is it quoted], without blank rows. The delimiter is found in the text. */
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

/** Return whether a cell can be a number or a boolean. */
export function isValue(text, datatype) {
  const patterns = [MISSING, NUMBER, INFINITE, ...(datatype === "BOOL" ? [BOOLEAN] : [])];
  return patterns.some((each) => each.test(text.trim()));
}

/** Return a cell as JSON. An empty cell is a missing value, unless it is `present` text. `place` is for errors. */
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

/** Return a number in JSON's form with all its digits: no plus sign, no leading zeros, digits around the point. */
function number(word) {
  const [, sign, whole, fraction, exponent = ""] = word.match(NUMBER);
  return (sign === "-" ? "-" : "") + (whole || "0") + (fraction && `.${fraction}`) + exponent;
}

export function base64(bytes) {
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
}
