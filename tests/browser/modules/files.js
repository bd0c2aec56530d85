import { downloadBlob } from "../../../specrace/ui/static/lib/files.js";

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "a download has its name and its content": async () => {
    const { click } = HTMLAnchorElement.prototype;
    let content;
    HTMLAnchorElement.prototype.click = function () {
      content = fetch(this.href).then(async (reply) => [this.download, await reply.text()]);
    };
    try {
      downloadBlob(new Blob(["a,b\r\n"]), "race.csv");
    } finally {
      HTMLAnchorElement.prototype.click = click;
    }
    return [await content, ["race.csv", "a,b\r\n"]];
  },
};
