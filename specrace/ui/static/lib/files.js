// Files that the visitor downloads from the page.
import { make } from "./dom.js";

export function downloadBlob(blob, name) {
  const link = make("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  // The browser reads the blob some time after the click.
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
