import { csvField, toCsv } from "../../../specrace/ui/static/lib/csv.js";

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "a text cannot be a spreadsheet's formula": () => [
    ["=cmd()", "+1", "-1", "@x"].map(csvField),
    ["'=cmd()", "'+1", "'-1", "'@x"],
  ],
  "numbers stay numbers": () => [[-0.1 - 0.2, 5].map(csvField), ["-0.3", "5"]],
  "quotes and commas": () => [csvField('a "b", c'), '"a ""b"", c"'],
  "a table": () => [
    toCsv([
      ["a", "b"],
      [1, "x"],
    ]),
    "a,b\r\n1,x\r\n",
  ],
};
