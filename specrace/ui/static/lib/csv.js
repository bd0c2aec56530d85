// Tables as CSV.

// A value as a CSV field. Text that a spreadsheet would run as a formula is preceded by an apostrophe.
export function csvField(value) {
  // Nine digits, because more would only show rounding errors.
  const text =
    typeof value === "number" ? String(Number(value.toPrecision(9))) : String(value).replace(/^[=+\-@\t\r]/, "'$&");
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export function toCsv(rows) {
  return rows.map((row) => `${row.map(csvField).join(",")}\r\n`).join("");
}
