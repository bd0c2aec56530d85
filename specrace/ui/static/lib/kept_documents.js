// Keeps a visitor's documents in this tab, so that a reload does not lose them. Nobody else gets them from here, and
// they are gone when the tab is closed.
const KEY = "specrace-documents";
// Whether the page has shown documents. Until it has, an empty field does not mean that the visitor removed them.
let shown = false;
// The documents that were chosen and have not been shown yet. A change of the field from before they were chosen, such
// as its clearing, may arrive after them; it must not remove them.
const awaited = new Set();

/** @returns {{ name: string, code: string }[]} the documents, each as base64 text */
function readEntries() {
  try {
    return JSON.parse(sessionStorage.getItem(KEY) ?? "[]");
  } catch {
    return [];
  }
}

// Stores entries. If they do not fit into the browser's storage, no documents are kept.
function writeEntries(entries) {
  try {
    sessionStorage.removeItem(KEY);
    if (entries.length) sessionStorage.setItem(KEY, JSON.stringify(entries));
  } catch {
    // The page works without them.
  }
}

/** @param {File} file */
async function encode(file) {
  const bytes = new Uint8Array(await file.arrayBuffer());
  return { name: file.name, code: btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join("")) };
}

// Keeps files, in addition to those that are kept already; a file replaces a kept one of its name.
/** @param {Iterable<File>} files */
export async function keepDocuments(files) {
  const names = [...files].map(({ name }) => name);
  for (const name of names) awaited.add(name);
  const added = await Promise.all([...files].map(encode));
  writeEntries([...readEntries().filter(({ name }) => !names.includes(name)), ...added]);
}

// Forgets all files but those with these names, which the page still shows, and those that it has yet to show.
/** @param {string[]} names */
export function forgetOtherDocuments(names) {
  shown ||= names.length > 0;
  for (const name of names) awaited.delete(name);
  if (!shown) return;
  const entries = readEntries();
  const kept = entries.filter(({ name }) => names.includes(name) || awaited.has(name));
  if (kept.length < entries.length) writeEntries(kept);
}

/** @returns {File[]} */
export function readKeptDocuments() {
  return readEntries().map(({ name, code }) => {
    const bytes = Uint8Array.from(atob(code), (letter) => letter.charCodeAt(0));
    return new File([bytes], name);
  });
}
