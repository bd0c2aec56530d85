import { withoutStorage } from "./fixtures.js";
import {
  forgetOtherDocuments,
  keepDocuments,
  readKeptDocuments,
} from "../../../specrace/ui/static/lib/kept_documents.js";

async function listKept() {
  return Promise.all(readKeptDocuments().map(async (file) => [file.name, await file.text()]));
}

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "documents are kept by name until the page no longer has them": async () => {
    await keepDocuments([new File(["owls 🦉"], "a.md"), new File([""], "empty.md")]);
    // The page has just been drawn: it has shown no documents yet, so none counts as removed.
    forgetOtherDocuments([]);
    await keepDocuments([new File(["more owls"], "a.md")]);
    forgetOtherDocuments(["a.md", "empty.md"]);
    const allKept = await listKept();
    forgetOtherDocuments(["a.md", "other.md"]);
    const oneKept = await listKept();
    forgetOtherDocuments([]);
    return [
      [allKept, oneKept, await listKept()],
      [
        [
          ["empty.md", ""],
          ["a.md", "more owls"],
        ],
        [["a.md", "more owls"]],
        [],
      ],
    ];
  },
  "a document that the page has yet to show survives the removal of those before it": async () => {
    await keepDocuments([new File(["owls"], "old.md")]);
    forgetOtherDocuments(["old.md"]);
    await keepDocuments([new File(["mice"], "new.md")]);
    // The field was cleared before the new document was chosen, but its change arrives after that.
    forgetOtherDocuments([]);
    const newKept = await listKept();
    forgetOtherDocuments(["new.md"]);
    forgetOtherDocuments([]);
    return [
      [newKept, await listKept()],
      [[["new.md", "mice"]], []],
    ];
  },
  "documents that the browser cannot store are not kept": async () => {
    await keepDocuments([new File(["owls"], "a.md")]);
    // More than the browser stores for a site.
    await keepDocuments([new File(["x".repeat(12_000_000)], "b.md")]);
    return [await listKept(), []];
  },
  "a browser that forbids storage keeps no documents": () =>
    withoutStorage(async () => {
      await keepDocuments([new File(["owls"], "a.md")]);
      return [await listKept(), []];
    }),
};
