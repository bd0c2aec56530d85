import { hasFolder, listDropped } from "../../../specrace/ui/static/drops.js";

function file(name) {
  return { name, isDirectory: false, file: (take) => take(new File(["x"], name)) };
}

// As a browser has one: two entries at a time.
function folder(name, ...entries) {
  const createReader = () => {
    const left = [...entries];
    return { readEntries: (take) => take(left.splice(0, 2)) };
  };
  return { name, isDirectory: true, createReader };
}

function drop(...entries) {
  return { items: entries.map((entry) => ({ webkitGetAsEntry: () => entry })) };
}

async function names(transfer, most) {
  return (await listDropped(transfer, most)).map(({ name }) => name);
}

export const cases = {
  "a folder's files, those of its folders, none that is hidden": async () => [
    await names(drop(folder("a", file("3"), file("1"), file(".2"), folder("b", file("4"))), file("5")), 20),
    ["1", "3", "4", "5"],
  ],
  "one more than fit": async () => [
    await names(drop(folder("a", file("1"), file("2"), file("3")), file("4")), 2),
    ["1", "2", "3"],
  ],
  "no folder": () => [
    [hasFolder(drop(file("1"))), hasFolder(drop(file("1"), folder("a"))), hasFolder({ items: [{}] })],
    [false, true, false],
  ],
};
