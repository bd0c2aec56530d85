// Recorded races: the cards of those that ship, and files that a visitor opens or drops. The server checks both.
import { make } from "./dom.js";
import { describeRecording, seconds, times } from "./format.js";
import { isUpload, uploadDocuments, uploadFolders } from "./gradio.js";
import { isLog } from "./scoring.js";

const MAX_FILE_BYTES = 16e6;
const GONE = "The server does not answer; reload the page.";

// A recording that was asked for, {reel}, or {error} in words.
async function hear(ask) {
  try {
    const { reel, error } = await ask();
    return error ? { error } : { reel: JSON.parse(reel) };
  } catch {
    return { error: GONE };
  }
}

export class Gallery {
  // `server` checks and reads recordings, and may take none of a visitor's; `take` gets a reel, `complain` a sentence;
  // `sift`, set later, takes logs and races.
  constructor(dialog, cards, { server, take, complain, takesFiles = true }) {
    Object.assign(this, { dialog, cards, server, take, complain, takesFiles });
    this.asked = 0;
    this.file = dialog.querySelector(".file");
    this.file.addEventListener("change", () => this.open(this.file.files[0]));
    dialog.querySelector("[data-do=open]").addEventListener("click", () => this.file.click());
    dialog.querySelector("[data-do=close]").addEventListener("click", () => dialog.close());
    dialog.querySelector(".opener").hidden = !takesFiles;
    dialog.querySelector(".shelf").append(...cards.map((card) => this.card(card)));
    document.addEventListener("dragover", (event) => this.drag(event));
    document.addEventListener("dragleave", (event) => event.relatedTarget || delete document.body.dataset.drop);
    document.addEventListener("drop", (event) => this.drop(event));
  }

  card(card) {
    const node = make("button", "card");
    node.type = "button";
    node.append(make("b", "", card.question ?? card.name));
    node.append(
      make(
        "span",
        "",
        `${card.fastest}: ${times(card.speedup)} vanilla · ${card.lanes.length} lanes · ${seconds(card.ms)}`,
      ),
    );
    node.append(make("small", "", describeRecording(card)));
    node.addEventListener("click", () => this.play(card.name));
    return node;
  }

  // `offered`: nobody asked for it. Whether it came to the stage.
  play(name, offered = false) {
    return this.receive(() => this.server.play_recorded(name), { offered });
  }

  // Several at once, for `take` instead of the stage.
  playAll(names, take) {
    const ask = async () => {
      const answers = await Promise.all(names.map((name) => this.server.play_recorded(name)));
      return answers.find(({ error }) => error) ?? { reel: `[${answers.map(({ reel }) => reel)}]` };
    };
    return this.receive(ask, { take });
  }

  async open(file) {
    this.file.value = "";
    if (!file) return;
    if (file.size > MAX_FILE_BYTES)
      return this.complain(`${file.name} is larger than ${MAX_FILE_BYTES / 1e6} MB; open a shorter race.`);
    await this.receive(async () => {
      const url = `gradio_api/recording?name=${encodeURIComponent(file.name)}`;
      const answer = await fetch(url, { method: "POST", body: file });
      return { [answer.ok ? "reel" : "error"]: await answer.text() };
    });
  }

  // Of several that are asked for, the last one counts. Whether this one was taken.
  async receive(ask, { offered = false, take = this.take } = {}) {
    const mine = ++this.asked;
    this.offered = offered;
    this.dialog.close();
    const { reel, error } = await hear(ask);
    if (mine !== this.asked) return false;
    if (error) this.complain(error);
    else take(reel, offered);
    return !error;
  }

  // What has not come yet would come too late.
  outdate() {
    this.asked++;
  }

  // The same for what nobody asked for.
  withdraw() {
    if (this.offered) this.outdate();
  }

  // Files for the questions' own documents are the upload's business.
  takes(event) {
    return event.dataTransfer?.types.includes("Files") && !(this.takesFiles && isUpload(event.target));
  }

  drag(event) {
    if (!this.takes(event)) return;
    event.preventDefault();
    if (this.takesFiles) document.body.dataset.drop = "true";
    else event.dataTransfer.dropEffect = "none";
  }

  // Documents are uploaded; what else it may be is seen by its content.
  sort(files) {
    const logs = [...files].filter(isLog);
    if (logs.length) return this.sift(logs);
    if (files.length && !uploadDocuments(files))
      this.complain(`${files[0].name} is no saved race and no log; this page takes .jsonl files.`);
    return undefined;
  }

  drop(event) {
    delete document.body.dataset.drop;
    if (!this.takes(event)) return;
    event.preventDefault();
    if (!uploadFolders(event.dataTransfer)) this.sort(event.dataTransfer.files);
  }
}
