import { hasFolder, listDropped } from "../../../specrace/ui/static/lib/drops.js";

function file(name) {
  return { name, isDirectory: false, file: (resolve) => resolve(new File(["x"], name)) };
}

// A folder that, like a browser's, returns its entries in batches.
function folder(name, ...entries) {
  const createReader = () => {
    const remaining = [...entries];
    return { readEntries: (resolve) => resolve(remaining.splice(0, 2)) };
  };
  return { name, isDirectory: true, createReader };
}

function drop(...entries) {
  return { items: entries.map((entry) => ({ webkitGetAsEntry: () => entry })) };
}

async function names(transfer, max) {
  return (await listDropped(transfer, max)).map(({ name }) => name);
}

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "the files of a folder and its folders, except hidden ones": async () => [
    await names(drop(folder("a", file("3"), file("1"), file(".2"), folder("b", file("4"))), file("5")), 20),
    ["1", "3", "4", "5"],
  ],
  "at most one file more than fit": async () => [
    await names(drop(folder("a", file("1"), file("2"), file("3")), file("4")), 2),
    ["1", "2", "3"],
  ],
  "whether a folder was dropped": () => [
    [hasFolder(drop(file("1"))), hasFolder(drop(file("1"), folder("a"))), hasFolder({ items: [{}] })],
    [false, true, false],
  ],
};
