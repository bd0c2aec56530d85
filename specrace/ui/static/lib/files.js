// Files that the visitor downloads from the page.
import { make } from "./dom.js";

export function downloadBlob(blob, name) {
  const link = make("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

// A value as a CSV field. Text that a spreadsheet would run as a formula is preceded by an apostrophe.
export function csvField(value) {
  const text =
    typeof value === "number" ? String(Number(value.toPrecision(9))) : String(value).replace(/^[=+\-@\t\r]/, "'$&");
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export function toCsv(rows) {
  return rows.map((row) => `${row.map(csvField).join(",")}\r\n`).join("");
}
