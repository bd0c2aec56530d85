// Retrieved passages. Offsets count characters as Python does, hence the arrays of code points.
const EVIDENCE = 1, DRAFTED = 2;

function make(tag, className, text, title) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  if (title) node.title = title;
  return node;
}

class Passage {
  constructor(passage, number) {
    this.characters = Array.from(passage.text);
    this.flags = new Uint8Array(this.characters.length);
    for (const [start, end] of passage.evidence) this.mark(start, end, EVIDENCE);
    this.node = make("article", "passage");
    const head = make("header");
    head.append(make("span", "number", `[${number}]`), make("h3", "", passage.title));
    head.append(make("span", "score", passage.score.toFixed(2), "Cosine between the question and this passage."));
    this.text = make("p");
    this.node.append(head, this.text, make("footer", "", passage.document));
    this.draw();
  }

  // Nothing is drafted from here yet.
  dim() {
    this.flags.forEach((flag, index) => (this.flags[index] = flag & ~DRAFTED));
    this.stale = true;
  }

  mark(start, end, flag) {
    for (let index = start; index < end && index < this.flags.length; index++) {
      this.stale ||= !(this.flags[index] & flag);
      this.flags[index] |= flag;
    }
  }

  draw() {
    this.stale = false;
    const parts = [];
    for (let start = 0; start < this.flags.length; ) {
      let end = start;
      while (end < this.flags.length && this.flags[end] === this.flags[start]) end++;
      const text = this.characters.slice(start, end).join("");
      const flags = this.flags[start];
      const names = [flags & EVIDENCE && "evidence", flags & DRAFTED && "drafted"].filter(Boolean);
      parts.push(names.length ? make("mark", names.join(" "), text) : document.createTextNode(text));
      start = end;
    }
    this.text.replaceChildren(...parts);
  }
}

class Passages {
  constructor(host) {
    this.host = host;
    this.list = [];
  }

  show(passages) {
    this.list = passages.map((passage, index) => new Passage(passage, index + 1));
    this.host.querySelector(".cards").replaceChildren(...this.list.map((passage) => passage.node));
    this.host.hidden = !this.list.length;
  }

  // Accepted runs say where they were copied from; redrawn at most four times a second.
  light(spans) {
    for (const [passage, start, end] of spans) this.list[passage]?.mark(start, end, DRAFTED);
    this.redraw();
  }

  // A replay begins anew.
  dim() {
    for (const passage of this.list) passage.dim();
    this.redraw();
  }

  redraw() {
    this.timer ??= setTimeout(() => {
      this.timer = undefined;
      for (const passage of this.list) if (passage.stale) passage.draw();
    }, 250);
  }
}
