// Lists what was dropped on the page: files, and the files in folders.

// Whether a folder was dropped. `transfer.files` does not tell: it lists a folder as an empty file.
export function hasFolder(transfer) {
  return entriesOf(transfer).some((entry) => entry.isDirectory);
}

// The first `max` dropped files and, if there are more, one more, so that the caller notices. Call this during the drop
// event, because afterwards the browser forgets what was dropped.
export async function listDropped(transfer, max) {
  const files = [];
  const entries = entriesOf(transfer);
  while (entries.length && files.length <= max) {
    const entry = entries.shift();
    if (entry.isDirectory) entries.unshift(...(await listFolder(entry)));
    else if (!entry.name.startsWith(".")) files.push(await openFile(entry));
  }
  return files;
}

function entriesOf(transfer) {
  return [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
}

// A folder's entries, sorted by name. The browser returns them in batches; the last batch is empty.
async function listFolder(folder) {
  const reader = folder.createReader();
  const entries = [];
  for (;;) {
    const batch = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    if (!batch.length) return entries.sort((a, b) => a.name.localeCompare(b.name));
    entries.push(...batch);
  }
}

function openFile(entry) {
  return new Promise((resolve, reject) => entry.file(resolve, reject));
}
