import { crc32, writeZip } from "../../../specrace/ui/static/lib/zip.js";

const bytes = (text) => new TextEncoder().encode(text);

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "the checksum is zip's": () => [
    [crc32(bytes("123456789")), crc32(bytes(""))],
    [0xcbf43926, 0],
  ],
  // test_modules.py reads such a zip with Python.
  "names and contents are in the zip": async () => {
    const zip = await writeZip([
      { name: "1/ü.jsonl", file: new Blob(["{}"]) },
      { name: "2/b.csv", file: new Blob(["a"]) },
    ]);
    const text = await zip.text();
    // A name is in the zip twice: before its content and in the directory. The size follows from the format.
    return [
      [zip.size, text.startsWith("PK\u0003\u0004"), text.split("1/ü.jsonl").length, text.includes("2/b.csva")],
      [211, true, 3, true],
    ];
  },
};
