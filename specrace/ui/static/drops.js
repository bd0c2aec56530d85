// What was dropped: files, and those in folders.

// Whether a folder is among it. A browser shows one as a file without content.
export function hasFolder(transfer) {
  return entriesOf(transfer).some((entry) => entry.isDirectory);
}

// The files, at most one more than `most`, so that it is seen that there are more. Has to be called at once: after the
// event the browser forgets what was dropped.
export async function listDropped(transfer, most) {
  const found = [];
  const waiting = entriesOf(transfer);
  while (waiting.length && found.length <= most) {
    const entry = waiting.shift();
    if (entry.isDirectory) waiting.unshift(...(await listFolder(entry)));
    else if (!entry.name.startsWith(".")) found.push(await openFile(entry));
  }
  return found;
}

function entriesOf(transfer) {
  return [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
}

// A browser gives a folder's entries in portions, an empty one at the end.
async function listFolder(folder) {
  const reader = folder.createReader();
  const entries = [];
  for (;;) {
    const some = await new Promise((take, fail) => reader.readEntries(take, fail));
    if (!some.length) return entries.sort((a, b) => a.name.localeCompare(b.name));
    entries.push(...some);
  }
}

function openFile(entry) {
  return new Promise((take, fail) => entry.file(take, fail));
}
